#include "registry.hpp"

#include <cmath>

namespace azq::bind {
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

}  // namespace

std::string to_text(const ParamValue& value) {
    if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
    if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
    if (const double* number = std::get_if<double>(&value)) return std::to_string(*number);
    return "'" + std::get<std::string>(value) + "'";
}

const ParamValue* ParamReader::take(const std::string& name) {
    const auto found = given_.find(name);
    return found == given_.end() ? nullptr : &found->second;
}

void ParamReader::refuse(const std::string& name, const std::string& takes) const {
    throw BadParam("game " + game_ + ": parameter " + name + " = " + to_text(given_.at(name)) + "; it takes " + takes);
}

bool ParamReader::flag(const std::string& name, bool otherwise) {
    const ParamValue* given = take(name);
    if (given != nullptr && !std::holds_alternative<bool>(*given)) refuse(name, "true or false");
    const bool value = given == nullptr ? otherwise : std::get<bool>(*given);
    values_[name] = value;
    return value;
}

int ParamReader::integer(const std::string& name, int otherwise, int low, int high) {
    const ParamValue* given = take(name);
    const std::string takes = "an integer in " + std::to_string(low) + ".." + std::to_string(high);
    if (given != nullptr && !std::holds_alternative<std::int64_t>(*given)) refuse(name, takes);
    const std::int64_t value = given == nullptr ? otherwise : std::get<std::int64_t>(*given);
    if (value < low || value > high) refuse(name, takes);
    values_[name] = value;
    return static_cast<int>(value);
}

double ParamReader::number(const std::string& name, double otherwise, double low, double high) {
    const ParamValue* given = take(name);
    const std::string takes = "a number in " + std::to_string(low) + ".." + std::to_string(high);
    double value = otherwise;
    if (given != nullptr && std::holds_alternative<std::int64_t>(*given)) {
        value = static_cast<double>(std::get<std::int64_t>(*given));
    } else if (given != nullptr && std::holds_alternative<double>(*given)) {
        value = std::get<double>(*given);
    } else if (given != nullptr) {
        refuse(name, takes);
    }
    if (!(value >= low && value <= high)) refuse(name, takes);
    values_[name] = value;
    return value;
}

int ParamReader::one_of(const std::string& name, std::initializer_list<int> choices) {
    const ParamValue* given = take(name);
    const std::string takes = "one of " + listed(choices, [](int choice) { return std::to_string(choice); });
    if (given != nullptr && !std::holds_alternative<std::int64_t>(*given)) refuse(name, takes);
    const std::int64_t value = given == nullptr ? *choices.begin() : std::get<std::int64_t>(*given);
    for (const int choice : choices) {
        if (value != choice) continue;
        values_[name] = value;
        return choice;
    }
    refuse(name, takes);
}

std::string ParamReader::text(const std::string& name, std::initializer_list<const char*> choices) {
    const ParamValue* given = take(name);
    const std::string takes = "one of " + listed(choices, [](const char* choice) { return std::string(choice); });
    if (given != nullptr && !std::holds_alternative<std::string>(*given)) refuse(name, takes);
    const std::string value = given == nullptr ? *choices.begin() : std::get<std::string>(*given);
    for (const char* choice : choices) {
        if (value != choice) continue;
        values_[name] = value;
        return value;
    }
    refuse(name, takes);
}

void ParamReader::require(bool holds, const std::string& rule) const {
    if (!holds) throw BadParam("game " + game_ + ": " + rule);
}

void ParamReader::finish() const {
    for (const auto& [name, value] : given_) {
        if (values_.contains(name)) continue;
        const std::string known = listed(values_, [](const auto& entry) { return entry.first; });
        throw BadParam("game " + game_ + " has no parameter " + name + "; it takes " + (known.empty() ? "none" : known));
    }
}

Registration::Registration(const char* name, Factory make) { registry().emplace(name, make); }

std::vector<std::string> registered_names() {
    std::vector<std::string> names;
    for (const auto& [name, make] : registry()) names.push_back(name);
    return names;
}

std::unique_ptr<AnyGame> make_game(const std::string& name, const Params& given) {
    const auto found = registry().find(name);
    if (found == registry().end()) return nullptr;
    ParamReader read(name, given);
    std::unique_ptr<AnyGame> game = found->second(read);
    read.finish();
    return game;
}

}  // namespace azq::bind
