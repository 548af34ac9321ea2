/// Binds SearchConfig, Search, Record and Result.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "modules.hpp"
#include "python_search.hpp"

namespace azq::bind {
namespace {

void require(bool holds, const std::string& what) {
    if (!holds) raise_azq("ConfigError", "search: " + what);
}

Algorithm parse_algorithm(const std::string& name) {
    require(name == "gumbel" || name == "puct", "algorithm must be gumbel or puct, not '" + name + "'");
    return name == "gumbel" ? Algorithm::kGumbel : Algorithm::kPuct;
}

void check(const SearchConfig& config) {
    require(config.num_simulations >= 1 && config.num_simulations <= (1 << 20), "num_simulations must be in 1..1048576");
    require(config.leaves_per_step >= 1 && config.leaves_per_step <= 4096, "leaves_per_step must be in 1..4096");
    require(config.max_considered_actions >= 1, "max_considered_actions must be at least 1");
    require(config.gumbel_scale >= 0.0f, "gumbel_scale must not be negative");
    require(config.dirichlet_alpha > 0.0f, "dirichlet_alpha must be positive");
    require(config.dirichlet_fraction >= 0.0f && config.dirichlet_fraction <= 1.0f, "dirichlet_fraction must be in [0, 1]");
    require(config.determinizations >= 0, "determinizations must not be negative");
    require(config.temperature >= 0.0f, "temperature must not be negative");
}

void bind_config(nb::module_& module) {
    nb::class_<SearchConfig>(module, "SearchConfig", "Keyword-only mirror of azq.config.SearchConfig.")
        .def("__init__",
             [](SearchConfig* self, const std::string& algorithm, int num_simulations, int leaves_per_step, bool reuse_subtree,
                int max_considered_actions, float gumbel_scale, float c_visit, float c_scale, float c_puct, float fpu_reduction,
                float dirichlet_alpha, float dirichlet_fraction, float temperature, int temperature_plies, int determinizations, int random_opening_plies) {
                 const SearchConfig config{parse_algorithm(algorithm), num_simulations, leaves_per_step, reuse_subtree,
                                           max_considered_actions, gumbel_scale, c_visit, c_scale, c_puct, fpu_reduction,
                                           dirichlet_alpha, dirichlet_fraction, temperature, temperature_plies, determinizations,
                                           random_opening_plies};
                 check(config);
                 new (self) SearchConfig(config);
             },
             nb::kw_only(), nb::arg("algorithm"), nb::arg("num_simulations"), nb::arg("leaves_per_step") = 1,
             nb::arg("reuse_subtree") = true, nb::arg("max_considered_actions") = 16, nb::arg("gumbel_scale") = 1.0f,
             nb::arg("c_visit") = 50.0f, nb::arg("c_scale") = 1.0f, nb::arg("c_puct") = 1.5f, nb::arg("fpu_reduction") = 0.25f,
             nb::arg("dirichlet_alpha") = 1.0f, nb::arg("dirichlet_fraction") = 0.25f, nb::arg("temperature") = 1.0f,
             nb::arg("temperature_plies") = 10, nb::arg("determinizations") = 0, nb::arg("random_opening_plies") = 0)
        .def_prop_ro("algorithm", [](const SearchConfig& self) { return self.algorithm == Algorithm::kGumbel ? "gumbel" : "puct"; })
        .def_ro("num_simulations", &SearchConfig::num_simulations)
        .def_ro("leaves_per_step", &SearchConfig::leaves_per_step)
        .def_ro("reuse_subtree", &SearchConfig::reuse_subtree)
        .def_ro("max_considered_actions", &SearchConfig::max_considered_actions)
        .def_ro("gumbel_scale", &SearchConfig::gumbel_scale)
        .def_ro("c_visit", &SearchConfig::c_visit)
        .def_ro("c_scale", &SearchConfig::c_scale)
        .def_ro("c_puct", &SearchConfig::c_puct)
        .def_ro("fpu_reduction", &SearchConfig::fpu_reduction)
        .def_ro("dirichlet_alpha", &SearchConfig::dirichlet_alpha)
        .def_ro("dirichlet_fraction", &SearchConfig::dirichlet_fraction)
        .def_ro("temperature", &SearchConfig::temperature)
        .def_ro("temperature_plies", &SearchConfig::temperature_plies)
        .def_ro("determinizations", &SearchConfig::determinizations)
        .def_ro("random_opening_plies", &SearchConfig::random_opening_plies);
}

void bind_record(nb::module_& module) {
    nb::class_<PyRecord>(module, "Record", "What self-play keeps of one game.")
        .def_ro("uid", &PyRecord::uid)
        .def_ro("actions", &PyRecord::actions)
        .def_ro("policies", &PyRecord::policies)
        .def_ro("root_values", &PyRecord::root_values)
        .def_ro("simulations", &PyRecord::simulations)
        .def_ro("weight_versions", &PyRecord::weight_versions)
        .def_ro("returns", &PyRecord::returns)
        .def_ro("terminal", &PyRecord::terminal);
}

void bind_result(nb::module_& module) {
    nb::class_<PyResult>(module, "Result", "Root statistics of a spent search, for the player to move.")
        .def_ro("action", &PyResult::action)
        .def_ro("best_action", &PyResult::best_action)
        .def_ro("policy", &PyResult::policy)
        .def_ro("visit_counts", &PyResult::visit_counts)
        .def_ro("q_values", &PyResult::q_values)
        .def_ro("prior_logits", &PyResult::prior_logits)
        .def_ro("root_value", &PyResult::root_value)
        .def_ro("proven", &PyResult::proven);
}

void bind_cache(nb::module_& module) {
    nb::class_<PyCache>(module, "EvaluationCache", "Evaluations that searches of one game share, in any number of threads.")
        .def(nb::init<const PyGame&, std::size_t>(), nb::arg("game"), nb::arg("entries"))
        .def("clear", [](const PyCache& self) { self.cache->clear(); })
        .def_prop_ro("entries", [](const PyCache& self) { return self.cache->entries(); })
        .def_prop_ro("memory_bytes", [](const PyCache& self) { return self.cache->memory_bytes(); });
}

}  // namespace

void bind_search(nb::module_& module) {
    bind_config(module);
    bind_record(module);
    bind_result(module);
    bind_cache(module);
    nb::class_<PySearch>(module, "Search", "Many trees searched in step.")
        .def(nb::init<const PyGame&, const SearchConfig&, int, std::uint64_t, int, bool, const PyCache*, bool>(), nb::arg("game"), nb::arg("config"),
             nb::kw_only(), nb::arg("num_slots"), nb::arg("seed"), nb::arg("num_threads") = 1, nb::arg("autoplay") = true,
             nb::arg("cache") = nb::none(), nb::arg("merge_symmetries") = false)
        .def("start", &PySearch::start, nb::arg("slot"), nb::arg("uid"), nb::arg("actions"), nb::arg("policies") = nb::none(),
             nb::arg("root_values") = nb::none(), nb::arg("simulations") = nb::none(), nb::arg("weight_versions") = nb::none())
        .def("start_at", &PySearch::start_at, nb::arg("slot"), nb::arg("uid"), nb::arg("state"))
        .def("clear", &PySearch::clear, nb::arg("slot"))
        .def("collect", &PySearch::collect, nb::arg("packed").noconvert(), nb::arg("slots").noconvert())
        .def("apply", &PySearch::apply, nb::arg("logits"), nb::arg("values"), nb::arg("weight_version") = 0)
        .def("run_uniform", &PySearch::run_uniform, nb::arg("max_simulations"))
        .def("finished_slots", [](const PySearch& self) { return self.slots_with(Slot::kFinished); })
        .def("idle_slots", [](const PySearch& self) { return self.slots_with(Slot::kIdle); })
        .def("empty_slots", [](const PySearch& self) { return self.slots_with(Slot::kEmpty); })
        .def("record", &PySearch::record, nb::arg("slot"))
        .def("changed_slots", &PySearch::changed_slots)
        .def("result", &PySearch::result, nb::arg("slot"))
        .def("play", &PySearch::play, nb::arg("slot"), nb::arg("action"))
        .def("state", &PySearch::state, nb::arg("slot"))
        .def("tree", &PySearch::tree, nb::arg("slot"))
        .def_prop_ro("num_slots", &PySearch::num_slots)
        .def_prop_ro("simulations", [](const PySearch& self) { return self.totals().simulations; })
        .def_prop_ro("exact_simulations", [](const PySearch& self) { return self.totals().exact; })
        .def_prop_ro("evaluations",
                     [](const PySearch& self) {
                         const Totals totals = self.totals();
                         return totals.leaves - totals.cache_hits - self.merged();
                     })
        .def_prop_ro("cache_lookups", [](const PySearch& self) { return self.totals().cache_lookups; })
        .def_prop_ro("cache_hits", [](const PySearch& self) { return self.totals().cache_hits; })
        .def_prop_ro("merged_leaves", &PySearch::merged)
        .def_prop_ro("plies", [](const PySearch& self) { return self.totals().plies; })
        .def_prop_ro("memory_bytes", &PySearch::memory_bytes);
}

}  // namespace azq::bind
