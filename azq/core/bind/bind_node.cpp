/// Binds what the search of games in Python leaves to C++: the arithmetic of a node, and packing what a game shows.
#include <nanobind/stl/vector.h>

#include "arrays.hpp"
#include "modules.hpp"
#include "node_statistics.hpp"

namespace azq::bind {
namespace {

using Row = Input<double, 1>;

NodeStatistics make_node(const std::vector<std::int32_t>& actions) {
    if (actions.empty()) throw nb::value_error("a node needs a legal action");
    if (*std::min_element(actions.begin(), actions.end()) < 0) throw nb::value_error("actions of a node are not negative");
    return NodeStatistics(actions);
}

void expand(NodeStatistics& self, const Input<Half, 1>& logits, double value) {
    const auto largest = static_cast<std::size_t>(*std::max_element(self.actions.begin(), self.actions.end()));
    if (largest >= logits.shape(0)) throw nb::value_error("there are fewer logits than the node's actions need");
    self.expand(logits.data(), value);
}

void update(NodeStatistics& self, std::size_t edge, double value) {
    if (edge >= self.actions.size()) throw nb::index_error("the node has no such edge");
    self.update(edge, value);
}

const double* of_each_edge(const NodeStatistics& self, const Row& values) {
    if (values.shape(0) != self.actions.size()) throw nb::value_error("a node's arrays have one number for each of its actions");
    return values.data();
}

int select_considered(const NodeStatistics& self, const Row& noisy_logits, std::int64_t considered, double c_visit, double c_scale, double q_range) {
    return self.select_considered(of_each_edge(self, noisy_logits), considered, c_visit, c_scale, q_range);
}

nb::tuple improved(const NodeStatistics& self, double c_visit, double c_scale, double q_range) {
    Doubles completed, scores;
    const double scale = self.complete(c_visit, c_scale, q_range, completed);
    self.improve(c_visit, c_scale, q_range, completed, scores);
    normalize(scores);
    Doubles sigma(completed);
    for (double& value : sigma) value = scale * (value + 1.0);
    return nb::make_tuple(to_numpy(scores), to_numpy(completed), to_numpy(sigma));
}

/// Writes bits, little order in each byte; returns the place of the first number that is neither 0 nor 1, or -1.
std::int64_t pack_bits(const Input<float, 1>& numbers, const Output<std::uint8_t, 1>& packed) {
    const std::size_t count = numbers.shape(0);
    if (packed.shape(0) < (count + 7) / 8) throw nb::value_error("the packed row is too short");
    const float* from = numbers.data();
    for (std::size_t begin = 0; begin < count; begin += 8) {
        unsigned byte = 0;
        for (std::size_t i = begin; i < std::min(begin + 8, count); ++i) {
            const bool set = from[i] == 1.0f;
            if (!set && from[i] != 0.0f) return static_cast<std::int64_t>(i);
            byte |= static_cast<unsigned>(set) << (i - begin);
        }
        packed.data()[begin / 8] = static_cast<std::uint8_t>(byte);
    }
    return -1;
}

/// 0 or 1 where the object is a plain number that is one of them, else -1.
int bit_of(PyObject* number) {
    double value = -1.0;
    if (PyFloat_CheckExact(number)) value = PyFloat_AsDouble(number);
    if (PyLong_CheckExact(number)) {
        int overflow = 0;
        value = static_cast<double>(PyLong_AsLongAndOverflow(number, &overflow));
    }
    return value == 1.0 ? 1 : value == 0.0 ? 0 : -1;
}

/// pack_bits of a list; false, with nothing said of what was written, where it holds anything but plain numbers that are 0 or 1.
bool pack_list(const nb::list& numbers, const Output<std::uint8_t, 1>& packed) {
    const std::size_t count = nb::len(numbers);
    if (packed.shape(0) < (count + 7) / 8) throw nb::value_error("the packed row is too short");
    std::fill_n(packed.data(), (count + 7) / 8, std::uint8_t{0});
    for (std::size_t i = 0; i < count; ++i) {
        const int bit = bit_of(PyList_GetItem(numbers.ptr(), static_cast<Py_ssize_t>(i)));
        if (bit < 0) return false;
        packed.data()[i / 8] = static_cast<std::uint8_t>(packed.data()[i / 8] | bit << (i % 8));
    }
    return true;
}

/// Whether a list holds nothing but plain whole numbers, ascending, distinct and in [0, limit).
bool ascending_below(const nb::list& numbers, long limit) {
    long before = -1;
    for (std::size_t i = 0; i < nb::len(numbers); ++i) {
        PyObject* number = PyList_GetItem(numbers.ptr(), static_cast<Py_ssize_t>(i));
        int overflow = 0;
        const long value = PyLong_CheckExact(number) ? PyLong_AsLongAndOverflow(number, &overflow) : -1;
        if (overflow != 0 || value <= before || value >= limit) return false;
        before = value;
    }
    return true;
}

}  // namespace

void bind_node(nb::module_& module) {
    nb::class_<NodeStatistics>(module, "NodeStatistics", "What the search in Python knows of a node, by its legal actions.")
        .def("__init__", [](NodeStatistics* self, const std::vector<std::int32_t>& actions) { new (self) NodeStatistics(make_node(actions)); },
             nb::arg("actions"))
        .def("expand", &expand, nb::arg("logits"), nb::arg("value"))
        .def("update", &update, nb::arg("edge"), nb::arg("value"))
        .def("select_puct", &NodeStatistics::select_puct, nb::arg("c_puct"), nb::arg("fpu_reduction"), nb::arg("q_range") = 2.0)
        .def("select_gumbel", &NodeStatistics::select_gumbel, nb::arg("c_visit"), nb::arg("c_scale"), nb::arg("q_range") = 2.0)
        .def("select_considered", &select_considered, nb::arg("noisy_logits"), nb::arg("considered"), nb::arg("c_visit"), nb::arg("c_scale"),
             nb::arg("q_range") = 2.0)
        .def("improved", &improved, nb::arg("c_visit"), nb::arg("c_scale"), nb::arg("q_range") = 2.0)
        .def("visits_of", [](const NodeStatistics& self, std::size_t edge) { return self.visits.at(edge); }, nb::arg("edge"))
        .def_prop_rw("prior", [](const NodeStatistics& self) { return to_numpy(self.prior); },
                     [](NodeStatistics& self, const Row& prior) { std::copy_n(of_each_edge(self, prior), self.prior.size(), self.prior.data()); })
        .def_prop_ro("logits", [](const NodeStatistics& self) { return to_numpy(self.logits); })
        .def_prop_ro("q", [](const NodeStatistics& self) { return to_numpy(self.q); })
        .def_prop_ro("visits", [](const NodeStatistics& self) { return to_numpy(self.visits); })
        .def_ro("mean", &NodeStatistics::mean)
        .def_ro("total", &NodeStatistics::total);
    module.def("pack_bits", &pack_bits, nb::arg("numbers"), nb::arg("packed"),
               "Writes numbers that are 0 or 1 as bits; returns the place of the first that is neither, or -1.");
    module.def("pack_list", &pack_list, nb::arg("numbers"), nb::arg("packed"),
               "The same of a list; False where it holds anything but plain numbers that are 0 or 1.");
    module.def("ascending_below", &ascending_below, nb::arg("numbers"), nb::arg("limit"),
               "Whether a list holds nothing but plain whole numbers, ascending, distinct and in [0, limit).");
}

}  // namespace azq::bind
