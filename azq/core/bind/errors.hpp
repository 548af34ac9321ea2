/// Errors of azq.errors raised from C++; messages say what is wrong, where, and what to do about it.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

namespace azq::bind {

/// Throws the exception class azq.errors.<name> with this message.
[[noreturn]] inline void raise_azq(const char* name, const std::string& message) {
    namespace nb = nanobind;
    const nb::object type = nb::module_::import_("azq.errors").attr(name);
    PyErr_SetString(type.ptr(), message.c_str());
    throw nb::python_error();
}

[[noreturn]] inline void raise_illegal(int action, const std::vector<int>& legal, const std::string& where) {
    std::string rest = legal.empty() ? "the game is over" : "legal actions: ";
    for (std::size_t i = 0; i < legal.size(); ++i) rest += (i == 0 ? "" : ", ") + std::to_string(legal[i]);
    raise_azq("IllegalActionError", "action " + std::to_string(action) + " is illegal " + where + "; " + rest);
}

[[noreturn]] inline void raise_runtime(const std::string& message) { throw std::runtime_error(message); }

}  // namespace azq::bind
