/// The parts of the extension module, bound in this order.
#pragma once

#include <nanobind/nanobind.h>

namespace azq::bind {

void bind_game(nanobind::module_& module);
void bind_node(nanobind::module_& module);
void bind_search(nanobind::module_& module);
void bind_uct(nanobind::module_& module);

}  // namespace azq::bind
