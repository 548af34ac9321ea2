// The measures of strength and of training: how each is called, written and read.

import { count, fixed, percent, signed } from "./format.js";

/** {title, format, floor, meaning}. */
export const MEASURES = {
  errors: { title: "Graded errors", format: (value) => percent(value, value === 0 || value >= 0.1 ? 0 : 1), meaning: "Share of graded positions in which the move played turns a win into a draw or loss, or a draw into a loss. Lower is better." },
  loss: { title: "Equity loss, millipoints", format: fixed(1), meaning: "Thousandths of a point that a graded turn gives away on average. Lower is better." },
  score: { title: "Score", format: count, floor: null, meaning: "Mean score of a game for one player." },
  points: { title: "Points a game", format: fixed(2), floor: null, meaning: "Mean points against an opponent that never changes." },
  share: { title: "First places", format: (value) => percent(value, 0), meaning: "Share of games won against opponents that never change." },
  elo: { title: "Elo", format: signed, floor: null, meaning: "Rating from evaluation matches; uct:100, a search without a network, is 0. 100 more win about 64 % of the games." },
  loss_policy: { title: "Policy loss", format: fixed(3), floor: null, meaning: "Cross entropy between the search's moves and the network's." },
  loss_value: { title: "Value loss", format: fixed(3), floor: null, meaning: "How far the network's values are from results." },
};
