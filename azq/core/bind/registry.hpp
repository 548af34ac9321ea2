/// The games of the extension: each file in bind/games registers one, with the parameters it takes.
#pragma once

#include <initializer_list>
#include <stdexcept>

#include "azq/any/any_game.hpp"

namespace azq::bind {

/// A parameter that a game does not have, or a value it does not take.
class BadParam : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// Reads what a caller gave, one parameter after another, and remembers what is in force. Throws BadParam, which names the
/// game, the parameter and the values it takes.
class ParamReader {
  public:
    ParamReader(std::string game, Params given) : game_(std::move(game)), given_(std::move(given)) {}

    bool flag(const std::string& name, bool otherwise);
    int integer(const std::string& name, int otherwise, int low, int high);
    double number(const std::string& name, double otherwise, double low, double high);
    int one_of(const std::string& name, std::initializer_list<int> choices);                        ///< The first is the default.
    std::string text(const std::string& name, std::initializer_list<const char*> choices);  ///< The first is the default.

    /// A rule between parameters, in words.
    void require(bool holds, const std::string& rule) const;
    /// Refuses what nobody read.
    void finish() const;
    const Params& values() const { return values_; }

  private:
    const ParamValue* take(const std::string& name);
    [[noreturn]] void refuse(const std::string& name, const std::string& takes) const;

    std::string game_;
    Params given_;
    Params values_;
};

using Factory = std::unique_ptr<AnyGame> (*)(ParamReader& read);

/// Puts a game into the registry while the module is loaded.
struct Registration {
    Registration(const char* name, Factory make);
};

std::vector<std::string> registered_names();

/// The game with these parameters; null where there is none of that name. Throws BadParam.
std::unique_ptr<AnyGame> make_game(const std::string& name, const Params& given);

std::string to_text(const ParamValue& value);

}  // namespace azq::bind
