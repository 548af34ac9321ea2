/// What passes between JavaScript and the module besides numbers: bytes in, bytes out, parameters, and what was refused.
///
/// A function that refuses says so by its answer (null, or one below zero) and leaves the reason in words in the output.
#pragma once

#include <concepts>
#include <cstring>
#include <string>
#include <vector>

#include "azq/any/any_game.hpp"

/// Marks a function that JavaScript calls.
#define AZQ_EXPORT(name) extern "C" __attribute__((export_name(#name), used))

namespace azq::wasm {

inline constexpr int kRefused = -1000;  ///< Below every actor and every count.

struct Exchange {
    std::vector<std::byte> input;   ///< Written by JavaScript before a call.
    std::vector<std::byte> output;  ///< Of the last call that has one, to be read before the next.
    Params params;                  ///< Named one by one before a call that takes them.

    std::string text(std::size_t first, std::size_t size) const { return {reinterpret_cast<const char*>(input.data()) + first, size}; }

    void answer(const std::string& words) {
        output.clear();
        append(words.data(), words.size());
    }
    template <class T>
    void append(const T* values, std::size_t count) {
        const auto* bytes = reinterpret_cast<const std::byte*>(values);
        output.insert(output.end(), bytes, bytes + count * sizeof(T));
    }
    template <class T>
    void append(const std::vector<T>& values) { append(values.data(), values.size()); }
    template <class T>
        requires std::integral<T> || std::floating_point<T>
    void append(T value) { append(&value, 1); }

    int refuse(const std::string& reason) {
        answer(reason);
        return kRefused;
    }
};

inline Exchange& exchange() {
    static Exchange all;
    return all;
}

/// In what way an action is illegal, with those that are legal.
std::string illegal(int action, const AnyState& state, const std::string& where);

}  // namespace azq::wasm
