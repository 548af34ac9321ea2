// What a person has to know to begin: a title, the rules of each game in four lines, what its players are called and how they win.

export const RULES = {
  "2048": { title: "2048", rules: [
    "Slide all tiles up, down, left or right.", "Equal tiles that meet become one of twice the value, which is added to the score.",
    "After each move a 2 or a 4 appears in an empty place.", "The game ends when nothing can move."] },
  backgammon: { title: "Backgammon", seats: ["White", "Black"], rules: [
    "Roll two dice and move your checkers by them; doubles count four times.", "A point with two or more of the opponent's checkers is closed; a single one is hit and starts again from the bar.",
    "With all fifteen in your home board, bear them off.", "The first to bear off all wins; twice or three times as much for a gammon or backgammon."] },
  beasty_bar: { title: "Beasty Bar", seats: ["Blue", "Orange", "Purple", "Teal"], rules: [
    "Play an animal from your hand to the end of the queue; its power acts at once.", "Then the recurring animals act, from the front to the back.",
    "When five stand in the queue, the first two enter the bar and the last one is thrown out.", "The player with the most animals in the bar at the end wins."] },
  blob: { title: "Blob", rules: [
    "Bid how many tricks you will take with the cards you hold.", "Follow suit if you can; the highest trump, else the highest card of the suit led, takes the trick.",
    "Points for each trick, and a bonus for exactly the number you bid.", "The hands differ in size from deal to deal; the most points win."] },
  connect_four: { title: "Connect four", seats: ["Red", "Yellow"], won: "four in a row", rules: [
    "Drop a disc into a column; it falls to the lowest empty place.", "Players take turns.",
    "Four in a row win: across, down or diagonally.", "A full board without four in a row is a draw."] },
  gomoku: { title: "Gomoku", seats: ["Black", "White"], won: "five in a row", rules: [
    "Put a stone on any empty point.", "Players take turns; stones never move.",
    "Five in a row win: across, down or diagonally.", "A full board without five in a row is a draw."] },
  hex: { title: "Hex", seats: ["Red", "Blue"], won: "both sides joined", rules: [
    "Put a stone on any empty cell.", "The first player joins the top and the bottom, the second the left and the right.",
    "Stones never move and are never taken.", "One of the two always succeeds: there are no draws."] },
  othello: { title: "Othello", seats: ["Black", "White"], rules: [
    "Put a disc where it encloses a line of the opponent's discs with one of yours.", "All discs enclosed so are turned over.",
    "Who has no such move passes.", "When neither can move, the most discs win."] },
  tic_tac_toe: { title: "Tic-tac-toe", seats: ["X", "O"], won: "three in a row", rules: [
    "Mark an empty field of three by three.", "Players take turns.",
    "Three in a row win: across, down or diagonally.", "A full board without three in a row is a draw."] },
};
