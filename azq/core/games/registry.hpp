/// The games by name: each file beside this one registers one, with the parameters it takes. Whatever is built of the core links them all.
#pragma once

#include <initializer_list>

#include "azq/any/any_game.hpp"

namespace azq {

/// Reads what a caller gave, one parameter after another, and remembers what is in force. What does not fit it says once, naming the
/// game, the parameter and the values it takes, and goes on with the default.
class ParamReader {
  public:
    ParamReader(std::string game, Params given) : game_(std::move(game)), given_(std::move(given)) {}

    bool flag(const std::string& name, bool otherwise);
    int integer(const std::string& name, int otherwise, int low, int high);
    int one_of(const std::string& name, std::initializer_list<int> choices);                ///< The first is the default.
    std::string text(const std::string& name, std::initializer_list<const char*> choices);  ///< The first is the default.

    /// A rule between parameters, in words.
    void require(bool holds, const std::string& rule);
    /// Refuses what nobody read.
    void finish();
    const Params& values() const { return values_; }
    const std::string& broken() const { return broken_; }  ///< The first rule that was broken; "": none.

  private:
    template <class T, class Fits>
    T take(const std::string& name, const T& otherwise, Fits&& fits, const std::string& takes);

    std::string game_;
    Params given_;
    Params values_;
    std::string broken_;
};

using Factory = std::unique_ptr<AnyGame> (*)(ParamReader& read);

/// Puts a game into the registry while the module is loaded.
struct Registration {
    Registration(const char* name, Factory make);
};

std::vector<std::string> registered_names();

/// The game with these parameters, or null and what is wrong with its name or with them.
std::pair<std::unique_ptr<AnyGame>, std::string> make_game(const std::string& name, const Params& given);

}  // namespace azq
