/// Positions of Beasty Bar as text: for readers, for players, and one line both ways.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "azq/games/beasty_bar/state.hpp"

namespace azq::beasty {

/// Two letters an animal, the strongest first; "-" for none.
inline std::string set_text(unsigned animals) {
    std::string text;
    for (int animal = kAnimals - 1; animal >= 0; --animal) {
        if (((animals >> animal) & 1) != 0) text += code(animal);
    }
    return text.empty() ? "-" : text;
}

template <int Players>
std::string sets_text(const std::uint16_t (&sets)[Players]) {
    std::string text;
    for (const std::uint16_t set : sets) text += " " + set_text(set);
    return text;
}

/// From the gate on, with owners, e.g. "Ze1 Mo0".
inline std::string queue_text(const Queue& queue) {
    std::string text;
    for (int i = 0; i < queue.length; ++i) text += " " + code(queue.animal(i)) + std::to_string(owner_of(queue.cards[i]));
    return text.empty() ? " -" : text;
}

/// Animals in the order in which a player drew them.
inline std::string drawn_text(std::uint64_t drawn, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += code(static_cast<int>(drawn >> 4 * i & 15));
    return text.empty() ? "-" : text;
}

template <int Players>
std::string turn_text(const State<Players>& state) {
    if (state.drawer >= 0) return "draws " + std::to_string(state.drawer);
    return state.actor() >= 0 ? "plays " + std::to_string(state.actor()) : "over";
}

/// Everything but the history: "queue Ze1 Mo0; bar - -; out Li -; hands ..; piles ..; plays 1". Sets by player, from player 0 on.
template <int Players>
std::string position_text(const State<Players>& state) {
    return "queue" + queue_text(state.queue) + "; bar" + sets_text(state.bar) + "; out" + sets_text(state.out) + "; hands" +
           sets_text(state.hand) + "; piles" + sets_text(state.pile) + "; " + turn_text(state);
}

/// The position and, where it is known, its history: "; drawn LiHi.. ..; played 0 12 ..", from which all of it follows.
template <int Players>
std::string notation(const State<Players>& state) {
    std::string text = position_text(state);
    if (state.unknown >= 0) return text;
    text += "; drawn";
    for (int i = 0; i < Players; ++i) text += " " + drawn_text(state.drawn[i], state.num_drawn(i));
    text += "; played";
    for (int i = 0; i < state.plies; ++i) text += " " + std::to_string(state.played[i]);
    return state.plies == 0 ? text + " -" : text;
}

/// What lies on the table and in hands, a line each.
template <int Players>
std::string table(const State<Players>& state) {
    std::string text = "queue" + queue_text(state.queue) + "\nbar" + sets_text(state.bar) + "\nout" + sets_text(state.out) + "\n";
    for (int i = 0; i < Players; ++i) {
        text += "player " + std::to_string(i) + " hand " + set_text(state.hand[i]) + " pile " + set_text(state.pile[i]) + "\n";
    }
    return text + turn_text(state) + "\n";
}

/// What a player knows: the table, whatever everybody played, his hand and the order in which he drew.
template <int Players>
std::string knowledge(const State<Players>& state, int player) {
    std::string text = "player " + std::to_string(player) + " of " + std::to_string(Players) + "\nqueue" + queue_text(state.queue) +
                       "\nbar" + sets_text(state.bar) + "\nout" + sets_text(state.out) + "\n" + turn_text(state) + "\nhand " +
                       set_text(state.hand[player]) + "\n";
    if (state.unknown < 0) text += "drawn " + drawn_text(state.drawn[player], state.num_drawn(player)) + "\n";
    for (int ply = std::max(int{state.unknown}, 0); ply < state.plies; ++ply) {
        text += std::to_string(ply) + ". " + play_text(state.played[ply]) + "\n";
    }
    return text;
}

/// Reads a line of `notation`, with or without its history, and says which rule it breaks.
template <int Players>
class Reader {
  public:
    std::string read(const std::string& line, State<Players>& state) {
        read_ = State<Players>::dealing();
        for (std::uint16_t& pile : read_.pile) pile = 0;
        read_.drawer = -1;
        const std::vector<std::vector<std::string>> parts = split(line);
        if (parts.size() != 6 && parts.size() != 8) {
            return "six parts, 'queue; bar; out; hands; piles; turn', and perhaps 'drawn; played' after them";
        }
        read_queue(parts[0]);
        read_sets(parts[1], "bar", read_.bar);
        read_sets(parts[2], "out", read_.out);
        read_sets(parts[3], "hands", read_.hand);
        read_sets(parts[4], "piles", read_.pile);
        if (error_.empty()) check_cards();
        if (error_.empty()) check_counts();
        if (error_.empty()) read_turn(parts[5]);
        if (error_.empty()) check_hands();
        if (error_.empty() && parts.size() == 8) replay(parts[6], parts[7]);
        if (error_.empty()) state = read_;
        return error_;
    }

  private:
    using Words = std::vector<std::string>;

    void refuse(const std::string& rule) {
        if (error_.empty()) error_ = rule;
    }

    /// Parts at semicolons, words at spaces.
    static std::vector<Words> split(const std::string& line) {
        std::vector<Words> parts(1);
        std::string word;
        const auto end_word = [&] {
            if (!word.empty()) parts.back().push_back(word);
            word.clear();
        };
        for (const char c : line) {
            if (c == ' ' || c == ';') end_word();
            else word += c;
            if (c == ';') parts.emplace_back();
        }
        end_word();
        return parts;
    }

    /// Whether a part begins with its name and has so many words more; -1: any number.
    bool named(const Words& words, const std::string& name, int count) {
        if (words.empty() || words[0] != name) {
            refuse("a part '" + name + "' belongs where '" + (words.empty() ? "" : words[0]) + "' stands");
        } else if (count >= 0 && static_cast<int>(words.size()) != count + 1) {
            refuse("'" + name + "' takes " + std::to_string(count) + " words, one a player");
        }
        return error_.empty();
    }

    int animal(const std::string& text, std::size_t at) {
        for (int number = 0; number < kAnimals; ++number) {
            if (text.compare(at, 2, code(number)) == 0) return number;
        }
        refuse("'" + text.substr(at, 2) + "' is no animal; they are " + std::string(kCodes));
        return 0;
    }

    static std::string owned(int player, int number) {
        return "player " + std::to_string(player) + "'s " + kNames[static_cast<std::size_t>(number)];
    }

    void read_queue(const Words& words) {
        if (!named(words, "queue", -1) || (words.size() == 2 && words[1] == "-")) return;
        if (words.size() == 1) refuse("an empty queue is written '-'");
        if (words.size() > kMaxQueue) refuse("at most 4 animals queue between two turns; the fifth opens the bar");
        for (std::size_t i = 1; i < words.size() && error_.empty(); ++i) {
            const int owner = words[i].size() == 3 ? words[i][2] - '0' : -1;
            if (owner < 0 || owner >= Players) return refuse("'" + words[i] + "' is no animal with its player, such as Li0");
            const Card card = make_card(owner, animal(words[i], 0));
            if (read_.queue.find(card) >= 0) refuse(owned(owner, animal_of(card)) + " is in two places");
            read_.queue.cards[read_.queue.length++] = card;
        }
    }

    void read_sets(const Words& words, const std::string& name, std::uint16_t (&sets)[Players]) {
        if (!error_.empty() || !named(words, name, Players)) return;
        for (int player = 0; player < Players; ++player) {
            const std::string& word = words[static_cast<std::size_t>(player) + 1];
            for (std::size_t at = 0; word != "-" && at < word.size() && error_.empty(); at += 2) {
                const int number = animal(word, at);
                if (((sets[player] >> number) & 1) != 0) refuse(owned(player, number) + " is in two places");
                put(sets, make_card(player, number));
            }
        }
    }

    void check_cards() {
        std::uint16_t queued[Players] = {};
        for (int i = 0; i < read_.queue.length; ++i) put(queued, read_.queue.cards[i]);
        for (int player = 0; player < Players; ++player) {
            unsigned seen = 0;
            for (const unsigned set : {read_.bar[player], read_.out[player], read_.hand[player], read_.pile[player], queued[player]}) {
                if ((seen & set) != 0) refuse(owned(player, std::countr_zero(seen & set)) + " is in two places");
                seen |= set;
            }
            if (seen != kAll) refuse(owned(player, std::countr_zero(~seen & kAll)) + " is nowhere");
        }
    }

    /// Seats take turns from player 0, and each opening of the bar admits two, throws one out and leaves two in the queue.
    void check_counts() {
        int bar = 0;
        int out = 0;
        for (int player = 0; player < Players; ++player) {
            bar += std::popcount(read_.bar[player]);
            out += std::popcount(read_.out[player]);
            read_.plies = static_cast<std::int8_t>(read_.plies + kAnimals - std::popcount(unplayed(player)));
        }
        for (int player = 0; player < Players; ++player) {
            const int played = kAnimals - std::popcount(unplayed(player));
            if (played == read_.turns(player)) continue;
            refuse("player " + std::to_string(player) + " has played " + std::to_string(played) + " of " + std::to_string(read_.plies) +
                   " cards; seats take turns from player 0");
        }
        if (bar % 2 != 0) refuse("the bar holds an odd number; it admits two at a time");
        if (out < bar / 2) refuse("fewer animals are out than the bar has opened, " + std::to_string(bar / 2) + " times");
        if (bar > 0 && read_.plies < 3 * (bar / 2) + 2) {
            refuse("the bar opens with the fifth animal queued and then at most every third card; " + std::to_string(read_.plies) +
                   " are played");
        }
    }

    unsigned unplayed(int player) const { return read_.hand[player] | unsigned{read_.pile[player]}; }

    void read_turn(const Words& words) {
        const std::string name = words.empty() ? "" : words[0];
        if (name == "over" && words.size() == 1) {
            if (read_.plies < kAnimals * Players) refuse("the game is not over before every card is played");
            return;
        }
        if ((name != "plays" && name != "draws") || words.size() != 2 || words[1].size() != 1) {
            return refuse("the turn is 'plays P', 'draws P' or 'over'");
        }
        const int player = words[1][0] - '0';
        if (player < 0 || player >= Players) return refuse("'" + words[1] + "' is no player");
        if (name == "draws") {
            read_.drawer = static_cast<std::int8_t>(player);
            if (read_.plies > 0 && player != (read_.plies - 1) % Players) refuse("whoever played last draws");
            if (read_.pile[player] == 0) refuse("player " + std::to_string(player) + " draws from an empty pile");
        } else if (read_.plies == kAnimals * Players) {
            refuse("every card is played: the game is over");
        } else if (player != read_.plies % Players) {
            refuse("after " + std::to_string(read_.plies) + " cards it is not player " + std::to_string(player) + "'s turn");
        }
    }

    /// Four cards, until the pile is empty; one less for whoever draws, and fewer while they are dealt, seat after seat.
    void check_hands() {
        read_.unknown = read_.plies;
        const bool dealing = read_.plies == 0 && read_.drawer >= 0;
        for (int player = 0; player < Players; ++player) {
            const int held = std::popcount(read_.hand[player]);
            if (dealing && player == read_.drawer && held < kHand) continue;
            const int draws = kHand + read_.turns(player) - (player == read_.drawer ? 1 : 0);
            const int due = dealing && player > read_.drawer ? 0 : std::min(draws, kAnimals) - read_.turns(player);
            if (held == due) continue;
            refuse("player " + std::to_string(player) + " holds " + std::to_string(held) + " cards, not " + std::to_string(due));
        }
    }

    /// Plays the history and compares where it leads.
    void replay(const Words& drawn, const Words& played) {
        if (!named(drawn, "drawn", Players) || !named(played, "played", -1)) return;
        State<Players> state = State<Players>::dealing();
        std::size_t ply = 1;
        const std::size_t end = played.size() == 2 && played[1] == "-" ? 1 : played.size();
        for (;;) {
            if (state.drawer >= 0) {
                const std::string& order = drawn[static_cast<std::size_t>(state.drawer) + 1];
                const std::size_t at = 2 * static_cast<std::size_t>(state.num_drawn(state.drawer));
                if (order == "-" || at >= order.size()) break;
                const int number = animal(order, at);
                if (!error_.empty()) return;
                if (((state.pile[state.drawer] >> number) & 1) == 0) return refuse(owned(state.drawer, number) + " is drawn twice");
                state.draw(number);
            } else {
                if (state.actor() < 0 || ply == end) break;
                const int action = legal_number(state, played[ply]);
                if (action < 0) return refuse("card " + std::to_string(ply) + " of the history, '" + played[ply] + "', is not legal there");
                state.play(action);
                ++ply;
            }
        }
        bool all = ply == end;
        for (int player = 0; player < Players; ++player) {
            const std::string& order = drawn[static_cast<std::size_t>(player) + 1];
            all = all && (order == "-" ? 0 : order.size()) == 2 * static_cast<std::size_t>(state.num_drawn(player));
        }
        if (!all || position_text(state) != position_text(read_)) return refuse("the history does not lead to this position");
        read_ = state;
    }

    static int legal_number(const State<Players>& state, const std::string& word) {
        std::uint16_t actions[kNumActions];
        const int count = state.legal(actions);
        for (int i = 0; i < count; ++i) {
            if (std::to_string(actions[i]) == word) return actions[i];
        }
        return -1;
    }

    State<Players> read_{};
    std::string error_;
};

template <int Players>
std::string parse(const std::string& line, State<Players>& state) {
    return Reader<Players>().read(line, state);
}

}  // namespace azq::beasty
