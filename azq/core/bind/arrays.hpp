/// NumPy arrays in and out of the binding.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstring>
#include <initializer_list>
#include <vector>

#include "azq/math.hpp"

template <>
struct nanobind::detail::dtype_traits<azq::Half> {
    static constexpr dlpack::dtype value{static_cast<std::uint8_t>(dlpack::dtype_code::Float), 16, 1};
    static constexpr auto name = const_name("float16");
};

namespace azq::bind {

namespace nb = nanobind;

template <class T, int Dimensions>
using Input = nb::ndarray<const T, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;

template <class T, int Dimensions>
using Output = nb::ndarray<T, nb::ndim<Dimensions>, nb::c_contig, nb::device::cpu>;

/// A new NumPy array that owns a copy of the values.
template <class T>
nb::object to_numpy(const std::vector<T>& values, std::initializer_list<std::size_t> shape) {
    auto* copy = new T[values.empty() ? 1 : values.size()];
    if (!values.empty()) std::memcpy(copy, values.data(), values.size() * sizeof(T));
    const nb::capsule owner(copy, [](void* pointer) noexcept { delete[] static_cast<T*>(pointer); });
    return nb::cast(nb::ndarray<nb::numpy, T>(copy, shape, owner));
}

template <class T>
nb::object to_numpy(const std::vector<T>& values) {
    return to_numpy(values, {values.size()});
}

template <class T>
std::vector<T> to_vector(const Input<T, 1>& array) {
    return {array.data(), array.data() + array.shape(0)};
}

}  // namespace azq::bind
