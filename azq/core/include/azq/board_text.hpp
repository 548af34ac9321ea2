/// Boards as one line of text: rows from the top, separated by '/', runs of empty cells as numbers, then the side to move.
#pragma once

#include <string>

namespace azq {

/// The line for `rows` x `columns` cells given by cell(row, column), '.' where empty; row 0 is written first.
template <class Cell>
std::string board_notation(int rows, int columns, Cell&& cell, char to_move) {
    std::string text;
    for (int row = 0; row < rows; ++row) {
        int run = 0;
        for (int column = 0; column < columns; ++column) {
            const char mark = cell(row, column);
            if (mark == '.') {
                ++run;
                continue;
            }
            if (run > 0) text += std::to_string(run);
            run = 0;
            text += mark;
        }
        if (run > 0) text += std::to_string(run);
        text += row + 1 < rows ? '/' : ' ';
    }
    return text + to_move;
}

/// What a line says: `cells` row by row ('.', 'x', 'o'), who is to move, and what follows (after a space).
struct BoardText {
    std::string cells;
    char to_move = ' ';
    std::string rest;
    std::string error;  ///< Empty, or what is wrong with the line.
};

inline BoardText parse_board(const std::string& text, int rows, int columns) {
    BoardText board;
    const auto refuse = [&](const std::string& why) {
        board.error = why;
        return board;
    };
    const auto width = static_cast<std::size_t>(columns);
    std::size_t at = 0;
    for (int row = 0; row < rows; ++row) {
        std::size_t filled = 0;
        for (; at < text.size() && text[at] != '/' && text[at] != ' '; ++at) {
            const char mark = text[at];
            std::size_t run = 1;
            if (mark >= '0' && mark <= '9') {
                run = static_cast<std::size_t>(mark - '0');
                while (at + 1 < text.size() && text[at + 1] >= '0' && text[at + 1] <= '9' && run <= width) {
                    run = 10 * run + static_cast<std::size_t>(text[++at] - '0');
                }
            } else if (mark != 'x' && mark != 'o') {
                return refuse(std::string("'") + mark + "' is no cell; write x, o and numbers of empty cells");
            }
            filled += run;
            if (filled > width) break;
            board.cells.append(run, mark == 'x' || mark == 'o' ? mark : '.');
        }
        const std::string where = "row " + std::to_string(row + 1);
        if (filled != width) return refuse(where + " does not have " + std::to_string(columns) + " cells");
        const char end = row + 1 < rows ? '/' : ' ';
        if (at >= text.size() && end == ' ') break;
        if (at >= text.size() || text[at] != end) return refuse(where + " is not followed by '" + end + "'");
        ++at;
    }
    if (at >= text.size() || (text[at] != 'x' && text[at] != 'o')) return refuse("the side to move is missing; end with x or o");
    board.to_move = text[at++];
    if (at < text.size() && text[at++] != ' ') return refuse("after the side to move comes a space or nothing");
    board.rest = text.substr(at);
    return board;
}

}  // namespace azq
