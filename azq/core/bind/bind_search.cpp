/// Binds SearchConfig, Search, Record and Result.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <bit>

#include "modules.hpp"
#include "python_search.hpp"

namespace azq::bind {
namespace {

[[noreturn]] void refuse(const std::string& what) { raise_azq("ConfigError", "search: " + what); }

/// What was given under a name; TypeError where nothing was, or nothing of this type.
template <class T>
T take(const nb::kwargs& given, const char* name) {
    T value{};
    if (!given.contains(name) || !nb::try_cast<T>(given[name], value)) {
        throw nb::type_error((std::string("SearchConfig: ") + name + " is missing or of another type").c_str());
    }
    return value;
}

template <class T>
void read(SearchConfig& config, const nb::kwargs& given, const Setting<T>& setting) {
    const T value = take<T>(given, setting.name);
    if (!(setting.least <= value && value <= setting.most)) refuse(std::string(setting.name) + " " + setting.rule);
    config.*setting.member = value;
}

SearchConfig read_config(const nb::kwargs& given) {
    const auto algorithm = take<std::string>(given, "algorithm");
    if (algorithm != "gumbel" && algorithm != "puct") refuse("algorithm must be gumbel or puct, not '" + algorithm + "'");
    SearchConfig config{};
    config.algorithm = algorithm == "gumbel" ? Algorithm::kGumbel : Algorithm::kPuct;
    std::apply([&](const auto&... settings) { (read(config, given, settings), ...); }, kSettings);
    if (given.size() != 1 + std::tuple_size_v<decltype(kSettings)>) throw nb::type_error("SearchConfig: one of those given is no setting");
    return config;
}

nb::object setting_of(const SearchConfig& config, const std::string& name) {
    nb::object found;
    if (name == "algorithm") found = nb::cast(config.algorithm == Algorithm::kGumbel ? "gumbel" : "puct");
    const auto look = [&](const auto& setting) {
        if (name == setting.name) found = nb::cast(config.*setting.member);
    };
    std::apply([&](const auto&... settings) { (look(settings), ...); }, kSettings);
    if (!found.is_valid()) throw nb::attribute_error(("SearchConfig has no setting " + name).c_str());
    return found;
}

void bind_config(nb::module_& module) {
    nb::class_<SearchConfig>(module, "SearchConfig", "Keyword-only mirror of azq.config.SearchConfig.")
        .def("__init__", [](SearchConfig* self, const nb::kwargs& given) { new (self) SearchConfig(read_config(given)); })
        .def("__getattr__", &setting_of);
}

/// A new array at each look: nobody changes what another looks at.
template <auto Member>
nb::object array_of(const RootStatistics& self) {
    return to_numpy(self.*Member);
}

template <auto Member>
nb::object by_ply(const PyRecord& self) {
    return to_numpy(self.game.*Member);
}

/// The arrays as they travel, little-endian, and last the support of sparse policies, empty where they are whole: no numpy arrays are made
/// on the way, of which self-play journals thousands a second.
nb::tuple packed(const PyRecord& self) {
    static_assert(std::endian::native == std::endian::little);
    const auto bytes = [](const auto& values) { return nb::bytes(values.data(), values.size() * sizeof(values[0])); };
    const GameRecord& game = self.game;
    const std::optional<SparsePolicies> sparse = sparse_policies(game, self.num_actions);
    return nb::make_tuple(bytes(game.actions), bytes(sparse ? sparse->entries : game.policies), bytes(game.root_values), bytes(game.simulations),
                          bytes(game.weight_versions), sparse ? bytes(sparse->support) : nb::bytes("", 0));
}

void bind_record(nb::module_& module) {
    nb::class_<PyRecord>(module, "Record", "What self-play keeps of one game.")
        .def_prop_ro("uid", [](const PyRecord& self) { return self.game.uid; })
        .def_prop_ro("actions", &by_ply<&GameRecord::actions>)
        .def_prop_ro("policies", [](const PyRecord& self) { return to_numpy(self.game.policies, {self.game.actions.size(), self.num_actions}); })
        .def_prop_ro("root_values", [](const PyRecord& self) { return to_numpy(self.game.root_values, {self.game.actions.size(), self.value_size}); })
        .def_prop_ro("simulations", &by_ply<&GameRecord::simulations>)
        .def_prop_ro("weight_versions", &by_ply<&GameRecord::weight_versions>)
        .def_prop_ro("returns", [](const PyRecord& self) { return to_numpy(self.returns); })
        .def_ro("terminal", &PyRecord::terminal)
        .def("packed", &packed);
}

void bind_result(nb::module_& module) {
    nb::class_<RootStatistics>(module, "Result", "Root statistics of a spent search, for the player to move.")
        .def_ro("action", &RootStatistics::action)
        .def_ro("best_action", &RootStatistics::best_action)
        .def_prop_ro("policy", &array_of<&RootStatistics::policy>)
        .def_prop_ro("visit_counts", &array_of<&RootStatistics::visit_counts>)
        .def_prop_ro("q_values", &array_of<&RootStatistics::q_values>)
        .def_prop_ro("prior_logits", &array_of<&RootStatistics::prior_logits>)
        .def_ro("root_value", &RootStatistics::root_value)
        .def_ro("proven", &RootStatistics::proven);
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
        .def("finished_slots", [](const PySearch& self) { return self.slots_with(SlotStatus::kFinished); })
        .def("idle_slots", [](const PySearch& self) { return self.slots_with(SlotStatus::kIdle); })
        .def("empty_slots", [](const PySearch& self) { return self.slots_with(SlotStatus::kEmpty); })
        .def("record", &PySearch::record, nb::arg("slot"))
        .def("changed_slots", &PySearch::changed_slots)
        .def("broken_slots", [](const PySearch&) { return nb::dict(); })
        .def("result", &PySearch::result, nb::arg("slot"))
        .def("play", &PySearch::play, nb::arg("slot"), nb::arg("action"))
        .def("state", &PySearch::state, nb::arg("slot"))
        .def("tree", &PySearch::tree, nb::arg("slot"))
        .def_prop_ro("num_slots", &PySearch::num_slots)
        .def_prop_ro("simulations", [](PySearch& self) { return self.totals().simulations; })
        .def_prop_ro("exact_simulations", [](PySearch& self) { return self.totals().exact; })
        .def_prop_ro("evaluations",
                     [](PySearch& self) {
                         const Totals totals = self.totals();
                         return totals.leaves - totals.cache_hits - self.merged();
                     })
        .def_prop_ro("cache_lookups", [](PySearch& self) { return self.totals().cache_lookups; })
        .def_prop_ro("cache_hits", [](PySearch& self) { return self.totals().cache_hits; })
        .def_prop_ro("merged_leaves", &PySearch::merged)
        .def_prop_ro("plies", [](PySearch& self) { return self.totals().plies; })
        .def_prop_ro("memory_bytes", &PySearch::memory_bytes);
}

}  // namespace azq::bind
