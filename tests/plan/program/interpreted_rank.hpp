// What one rank of the interpreter computes, and its memory.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "plan/model/model_graph.hpp"
#include "plan/program/content_hash.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan::test {

// Why a Program cannot be carried out.
class Impossible : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Where an asynchronous instruction has its data, what it makes and its staging.
// An update on another lane, of the memory that it found when it was issued: it reads gradients and
// the norm first, and changes the rest later.
struct IssuedUpdate {
  std::function<void()> read;
  std::function<void()> write;
};

struct IssuedBuffers {
  std::shared_ptr<IssuedUpdate> update;
  Storage source;
  Storage target;
  Storage staging;
  Storage shard;  // of a gather into other memory: goes into the source first
};

class InterpretedRank {
 public:
  InterpretedRank(const ModelGraph& graph, const Program& program);

  bool done() const { return static_cast<std::size_t>(next_) == program_.instructions.size(); }
  int next() const { return next_; }
  const Instruction& instruction() const;
  std::string where() const;
  std::int64_t bytes(int buffer) const;

  // The instruction that comes next, on Compute; throws Impossible.
  void compute();
  // Of one on another lane, what happens when it is issued.
  IssuedBuffers issue();
  // Frees, and goes on.
  void advance();
  // What lasts and what was reported.
  Hash result() const;

 private:
  const Storage& slot(int buffer) const;
  Contents& memory(int buffer) const { return *slot(buffer); }
  Hash whole(int buffer) const { return digest(memory(buffer)); }
  Storage make(int buffer);
  // What is taken whole only is one, whatever its memory was made for.
  void make(int buffer, Hash whole) { make(buffer)->assign(1, whole); }
  // The range's first element in its memory, which has all of them.
  Hash* part(const Range& range) const;
  Hash digest_of(const Range& range) const;
  Hash start(const char* what) const;
  bool adds_to(int buffer) const;
  const NodeSpec& node() const;

  void forward();
  void backward();
  void begin_pass();
  void finish_pass();
  void write_weight_gradients(Hash known);
  void write_input_gradient(std::size_t input, Hash made, const Storage& given);
  void emit_loss();
  void keep_shard();
  void sum_squares();
  void sum_tensors();
  void update();
  std::shared_ptr<IssuedUpdate> issued_update();
  // What a piece adds to each of the sums of its parameter in a round. `given`: the norm, and the
  // sums of the rounds before; `part`: a range's first element.
  static Contents sums_of_piece(const Piece& piece, std::size_t round, Hash given,
                                const std::function<Hash*(const Range& range)>& part);
  // The norm and the sums of the parameter, of as many rounds as the instruction takes.
  Hash given_for(const Piece& piece) const;
  static void update_piece(const Piece& piece, const Hash* gradient, Hash norm,
                           const std::function<Hash*(const Range& range)>& part);

  const ModelGraph& graph_;
  const Program& program_;
  int next_ = 0;
  int made_ = 0;
  std::vector<Storage> slots_;                   // by buffer
  std::multimap<std::string, Storage> lasting_;  // of the state, whatever becomes of its names
  Hash reported_ = 11;
};

}  // namespace garonne::plan::test
