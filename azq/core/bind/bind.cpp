/// The extension module azq._core.
#include "modules.hpp"

NB_MODULE(_core, module) {
    module.doc() = "Rules and search, compiled from the C++20 headers in azq/core.";
    azq::bind::bind_game(module);
    azq::bind::bind_node(module);
    azq::bind::bind_search(module);
    azq::bind::bind_uct(module);
}
