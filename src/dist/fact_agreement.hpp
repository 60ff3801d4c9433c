// Facts that all ranks of a run must share, compared before anything is made of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dist/session.hpp"

namespace garonne::dist {

// What to do about a fact whose values differ; gets the values in rank order, each once.
using Remedy = std::function<std::string(const std::vector<std::string>& values)>;

// The same advice whatever the values are.
Remedy advise(std::string text);

struct Fact {
  std::string name;   // of a kind once in a list: "optimizer.learning_rate"
  std::string value;  // compared as it is
  Remedy remedy;
  std::string place;  // said beside the value and not compared: where this rank has it from
};
using Facts = std::vector<Fact>;

void append(Facts more, Facts& facts);

// Runs `find` on every rank, as a phase of Session::agree, and compares what it found: nothing but
// hashes travel where all is alike. Where ranks differ, in values or in which facts they have, all
// throw one AgreedError (Usage) of at most 2 kB that says which ranks have which values and what to
// do. Does nothing on one rank. Collective.
void agree_on(Session& session, const std::function<Facts()>& find);

// What that error says of the lists of all ranks; empty where they are alike. For agree_on and its
// tests.
std::string describe_differences(const std::vector<Facts>& facts_of_ranks);

}  // namespace garonne::dist
