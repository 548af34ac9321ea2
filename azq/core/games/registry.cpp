#include "registry.hpp"

#include <algorithm>

namespace azq {
namespace {

/// Ordered by name; a function's static, because registrations run before anything else of the module.
std::map<std::string, Factory>& registry() {
    static std::map<std::string, Factory> games;
    return games;
}

template <class Items, class Text>
std::string listed(const Items& items, Text&& text) {
    std::string list;
    for (const auto& item : items) list += (list.empty() ? "" : ", ") + text(item);
    return list;
}

std::string to_text(const ParamValue& value) {
    if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
    if (const double* number = std::get_if<double>(&value)) return std::to_string(*number);
    return "'" + std::get<std::string>(value) + "'";
}

}  // namespace

template <class T, class Fits>
T ParamReader::take(const std::string& name, const T& otherwise, Fits&& fits, const std::string& takes) {
    T value = otherwise;
    if (const auto found = given_.find(name); found != given_.end()) {
        const T* given = std::get_if<T>(&found->second);
        const bool good = given != nullptr && fits(*given);
        require(good, "parameter " + name + " = " + to_text(found->second) + "; it takes " + takes);
        if (good) value = *given;
    }
    values_[name] = value;
    return value;
}

bool ParamReader::flag(const std::string& name, bool otherwise) {
    return take(name, otherwise, [](bool) { return true; }, "true or false");
}

int ParamReader::integer(const std::string& name, int otherwise, int low, int high) {
    const auto fits = [&](std::int64_t value) { return low <= value && value <= high; };
    return static_cast<int>(take(name, std::int64_t{otherwise}, fits, "an integer in " + std::to_string(low) + ".." + std::to_string(high)));
}

int ParamReader::one_of(const std::string& name, std::initializer_list<int> choices) {
    const auto fits = [&](std::int64_t value) { return std::find(choices.begin(), choices.end(), value) != choices.end(); };
    const std::string takes = "one of " + listed(choices, [](int choice) { return std::to_string(choice); });
    return static_cast<int>(take(name, std::int64_t{*choices.begin()}, fits, takes));
}

std::string ParamReader::text(const std::string& name, std::initializer_list<const char*> choices) {
    const auto fits = [&](const std::string& value) { return std::find(choices.begin(), choices.end(), value) != choices.end(); };
    const std::string takes = "one of " + listed(choices, [](const char* choice) { return std::string(choice); });
    return take(name, std::string(*choices.begin()), fits, takes);
}

void ParamReader::require(bool holds, const std::string& rule) {
    if (!holds && broken_.empty()) broken_ = "game " + game_ + ": " + rule;
}

void ParamReader::finish() {
    for (const auto& [name, value] : given_) {
        if (values_.contains(name) || !broken_.empty()) continue;
        const std::string known = listed(values_, [](const auto& entry) { return entry.first; });
        broken_ = "game " + game_ + " has no parameter " + name + "; it takes " + (known.empty() ? "none" : known);
    }
}

Registration::Registration(const char* name, Factory make) { registry().emplace(name, make); }

std::vector<std::string> registered_names() {
    std::vector<std::string> names;
    for (const auto& [name, make] : registry()) names.push_back(name);
    return names;
}

std::pair<std::unique_ptr<AnyGame>, std::string> make_game(const std::string& name, const Params& given) {
    const auto found = registry().find(name);
    if (found == registry().end()) {
        return {nullptr, "no game is called '" + name + "'; known games: " + listed(registered_names(), [](const auto& known) { return known; })};
    }
    ParamReader read(name, given);
    std::unique_ptr<AnyGame> game = found->second(read);
    read.finish();
    if (!read.broken().empty()) game.reset();
    return {std::move(game), read.broken()};
}

}  // namespace azq
