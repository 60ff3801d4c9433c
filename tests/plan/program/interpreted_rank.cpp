#include "plan/program/interpreted_rank.hpp"

#include <algorithm>

#include "plan/step/graphs.hpp"

namespace garonne::plan::test {

InterpretedRank::InterpretedRank(const ModelGraph& graph, const Program& program)
    : graph_(graph), program_(program), slots_(program.buffers.size()) {
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (!buffer.live_at_start) continue;
    // What lasts is called by what it is, on whichever tier.
    const std::string name = buffer.name.substr(0, buffer.name.find('@'));
    fill(*make(static_cast<int>(id)), mix(hash_of(name), program.rank));
    lasting_.emplace(name, slots_[id]);
  }
}

const Instruction& InterpretedRank::instruction() const {
  return program_.instructions.at(as_index(next_));
}

std::string InterpretedRank::where() const {
  return "rank " + std::to_string(program_.rank) + ", instruction " + std::to_string(next_) + ", " +
         describe(instruction());
}

std::int64_t InterpretedRank::bytes(int buffer) const {
  return program_.buffers.at(as_index(buffer)).bytes;
}

const Storage& InterpretedRank::slot(int buffer) const {
  if (buffer < 0 || as_index(buffer) >= slots_.size() || !slots_[as_index(buffer)])
    throw Impossible(where() + " uses buffer " + std::to_string(buffer) + ", which is not there");
  return slots_[as_index(buffer)];
}

Storage InterpretedRank::make(int buffer) {
  const std::int64_t elements = program_.buffers.at(as_index(buffer)).elements;
  Storage& made = slots_[as_index(buffer)];
  made = std::make_shared<Contents>(std::max<std::int64_t>(elements, 1));
  fill(*made, poison | mix(Hash{13}, ++made_));
  return made;
}

Hash* InterpretedRank::part(const Range& range) const {
  Contents& all = memory(range.buffer);
  const auto size = static_cast<std::int64_t>(all.size());
  if (range.offset < 0 || range.elements < 0 || range.offset > size - range.elements)
    throw Impossible(where() + " uses elements that are not there");
  return all.data() + range.offset;
}

Hash InterpretedRank::digest_of(const Range& range) const {
  const Hash* const first = part(range);
  Hash hash = 17;
  for (std::int64_t e = 0; e < range.elements; ++e) hash = mix(hash, first[e]);
  return hash;
}

// Samples differ by data rank and micro-batch, and random numbers with them.
Hash InterpretedRank::start(const char* what) const {
  const Instruction& now = instruction();
  return mix(mix(hash_of(what), now.micro_batch), program_.coordinates.data);
}

// What is given to be read, too, is there before.
bool InterpretedRank::adds_to(int buffer) const {
  const auto& reads = instruction().reads;
  return std::find(reads.begin(), reads.end(), buffer) != reads.end();
}

const NodeSpec& InterpretedRank::node() const {
  return graph_.nodes.at(as_index(instruction().node_index));
}

void InterpretedRank::advance() {
  for (const int id : instruction().writes) {
    if (bytes(id) > 0) slot(id);
  }
  for (const int id : instruction().frees) slots_.at(as_index(id)).reset();
  ++next_;
}

Hash InterpretedRank::result() const {
  Hash hash = reported_;
  for (const auto& [name, storage] : lasting_) hash = mix(hash, digest(*storage));
  return hash;
}

void InterpretedRank::compute() {
  const Instruction& now = instruction();
  const Arguments& arguments = now.arguments;
  switch (now.operation) {
    case Operation::Load:
      for (const LoadedValue& loaded : arguments.loaded) {
        const std::string& name = graph_.values.at(as_index(loaded.value)).name;
        make(loaded.buffer, mix(start("load"), hash_of(name)));
      }
      return;
    case Operation::Forward:
    case Operation::ForwardKeep:
      return arguments.exchanged < 0 ? forward() : begin_pass();
    case Operation::Backward:
    case Operation::BackwardWeight:
    case Operation::BackwardInput:
      return arguments.exchanged < 0 ? backward() : begin_pass();
    case Operation::FinishForward:
    case Operation::FinishBackward:
      return finish_pass();
    case Operation::EmitLoss:
      return emit_loss();
    case Operation::KeepShard:
      return keep_shard();
    case Operation::SumSquares:
      return sum_squares();
    case Operation::Norm: {
      const Hash squares = memory(arguments.inputs.at(0)).at(1);
      return make(arguments.output, mix(hash_of("norm"), squares));
    }
    case Operation::SumTensors:
      return sum_tensors();
    case Operation::Update:
      return update();
    case Operation::Report:
      for (const int id : arguments.inputs) reported_ = mix(reported_, whole(id));
      return;
    default:
      throw Impossible(where() + " is nothing that Compute does");
  }
}

IssuedBuffers InterpretedRank::issue() {
  const Instruction& now = instruction();
  const Arguments& arguments = now.arguments;
  IssuedBuffers buffers;
  switch (now.operation) {
    case Operation::Send:
      buffers.source = slot(arguments.inputs.at(0));
      if (arguments.output >= 0) make(arguments.output, nought);
      break;
    case Operation::Receive:
      buffers.target = make(arguments.output);
      break;
    case Operation::CopyOut:
    case Operation::CopyIn:
    case Operation::DiskWrite:
    case Operation::DiskRead:
      buffers.source = slot(arguments.inputs.at(0));
      buffers.target = adds_to(arguments.output) ? slot(arguments.output) : make(arguments.output);
      break;
    case Operation::UpdateHost:
      buffers.update = issued_update();
      break;
    case Operation::AllGather:
      if (arguments.output != arguments.inputs.at(0)) {
        buffers.shard = slot(arguments.inputs[0]);
        make(arguments.output);
      }
      buffers.source = buffers.target = slot(arguments.output);
      break;
    default:
      buffers.source = buffers.target = slot(arguments.inputs.at(0));
      break;
  }
  if (arguments.staging >= 0) buffers.staging = make(arguments.staging);
  return buffers;
}

void InterpretedRank::forward() {
  const Arguments& arguments = instruction().arguments;
  Hash known = mix(start("forward"), hash_of(node().name));
  for (const int id : arguments.inputs) known = mix(known, whole(id));
  for (const Range& range : arguments.parameters) known = mix(known, digest_of(range));
  make(arguments.output, mix(known, -1));
  if (instruction().operation != Operation::ForwardKeep) return;
  for (std::size_t slot = 0; slot < arguments.record.size(); ++slot)
    make(arguments.record[slot], mix(known, static_cast<int>(slot)));
}

void InterpretedRank::backward() {
  const Arguments& arguments = instruction().arguments;
  Hash known = mix(start("backward"), hash_of(node().name));
  Storage given;
  if (arguments.output_gradient >= 0) {
    given = slot(arguments.output_gradient);
    known = mix(known, digest(*given));
  }
  for (const int id : arguments.inputs) known = id < 0 ? mix(known, -1) : mix(known, whole(id));
  if (arguments.pinned_output >= 0) known = mix(known, whole(arguments.pinned_output));
  for (const int id : arguments.record) known = mix(known, whole(id));
  Hash with_parameters = known;
  for (const Range& range : arguments.parameters)
    with_parameters = mix(with_parameters, digest_of(range));
  write_weight_gradients(known);
  for (std::size_t i = 0; i < arguments.input_gradients.size(); ++i) {
    if (arguments.input_gradients[i] >= 0)
      write_input_gradient(i, mix(with_parameters, static_cast<int>(i)), given);
  }
}

// Every rank of a tensor group has another part.
void InterpretedRank::begin_pass() {
  const Arguments& arguments = instruction().arguments;
  const bool is_forward = plan::is_forward(instruction().operation);
  const int from = is_forward ? arguments.inputs.at(0) : arguments.output_gradient;
  const Hash known = mix(mix(start("begin"), hash_of(node().name)), is_forward ? 1 : 0);
  const Hash part = mix(mix(known, whole(from)), program_.coordinates.tensor);
  if (arguments.exchanged == arguments.output_gradient) return fill(memory(from), part);
  make(arguments.exchanged, part);
}

void InterpretedRank::finish_pass() {
  const Arguments& arguments = instruction().arguments;
  const bool is_forward = instruction().operation == Operation::FinishForward;
  const int result = is_forward ? arguments.output : arguments.input_gradients.at(0);
  Hash made = mix(mix(start("finish"), hash_of(node().name)), is_forward ? 1 : 0);
  made = mix(made, whole(arguments.exchanged));
  const Placement placement = is_forward ? Placement::Fresh : arguments.placements.at(0);
  if (placement == Placement::AddExisting) made = add(whole(arguments.accumulated.at(0)), made);
  if (result == arguments.exchanged || placement == Placement::Overwrite)
    return fill(memory(result), made);
  make(result, made);
}

void InterpretedRank::write_weight_gradients(Hash known) {
  const Arguments& arguments = instruction().arguments;
  for (const GradientTarget& target : arguments.parameter_gradients) {
    const int id = target.range.buffer;
    if (!slots_.at(as_index(id))) make(id);
  }
  for (const Range& range : arguments.zeroed) std::fill_n(part(range), range.elements, nought);
  for (std::size_t k = 0; k < arguments.parameter_gradients.size(); ++k) {
    const GradientTarget& target = arguments.parameter_gradients[k];
    const Hash gradient = mix(mix(known, 1000), static_cast<int>(k));
    Hash* const elements = part(target.range);
    for (std::int64_t e = 0; e < target.range.elements; ++e) {
      const Hash more = mix(gradient, static_cast<int>(e));
      elements[e] = target.accumulate ? add(elements[e], more) : more;
    }
  }
}

// `given` is the gradient of the output, which some of them are over again.
void InterpretedRank::write_input_gradient(std::size_t input, Hash made, const Storage& given) {
  const Arguments& arguments = instruction().arguments;
  const int id = arguments.input_gradients[input];
  const auto existing = [&] { return whole(arguments.accumulated.at(input)); };
  const auto output_gradient = [&]() -> const Storage& {
    if (!given) throw Impossible(where() + " has no gradient of its output");
    return given;
  };
  switch (arguments.placements.at(input)) {
    case Placement::None:
      return;
    case Placement::Fresh:
      return make(id, made);
    case Placement::Alias:
      slots_.at(as_index(id)) = output_gradient();
      return;
    case Placement::Overwrite:
      fill(*output_gradient(), made);
      slots_.at(as_index(id)) = output_gradient();
      return;
    case Placement::AddInPlace: {
      Contents& there = memory(id);
      return fill(there, add(digest(there), made));
    }
    case Placement::AddExisting: {
      const Hash sum = add(existing(), made);
      return make(id, sum);
    }
    case Placement::SumWithAlias: {
      const Hash sum = add(existing(), digest(*output_gradient()));
      return make(id, sum);
    }
  }
}

void InterpretedRank::emit_loss() {
  const Arguments& arguments = instruction().arguments;
  const Hash loss = whole(arguments.inputs.at(0));
  const bool first = !adds_to(arguments.output);
  if (first) make(arguments.output)->assign(2, nought);
  Hash& sum = memory(arguments.output).at(0);
  sum = add(sum, loss);
}

void InterpretedRank::keep_shard() {
  const Arguments& arguments = instruction().arguments;
  const GradientTarget& target = arguments.parameter_gradients.at(0);
  const Hash* const from = part(arguments.part);
  const Contents kept(from, from + arguments.part.elements);
  if (!target.accumulate) {
    make(target.range.buffer)->assign(kept.begin(), kept.end());
    return;
  }
  if (target.range.elements != arguments.part.elements)
    throw Impossible(where() + " keeps another number of elements");
  Hash* const sum = part(target.range);
  for (std::size_t e = 0; e < kept.size(); ++e) sum[e] = add(sum[e], kept[e]);
}

void InterpretedRank::sum_squares() {
  const Arguments& arguments = instruction().arguments;
  if (!adds_to(arguments.output)) make(arguments.output)->assign(2, nought);
  Contents& sums = memory(arguments.output);
  for (const int id : arguments.pieces) {
    const Piece& piece = program_.pieces.at(as_index(id));
    const Hash gradient = digest_of(piece.gradient);
    if (piece.counted) sums.at(1) = add(sums.at(1), mix(hash_of("squares"), gradient));
  }
  if (arguments.drops_loss) sums.at(0) = nought;
}

Contents InterpretedRank::sums_of_piece(const Piece& piece, std::size_t round, Hash given,
                                        const std::function<Hash*(const Range& range)>& part) {
  Hash all = mix(hash_of("tensor"), given);
  const auto more = [&](const Range& range) {
    const Hash* const first = part(range);
    for (std::int64_t e = 0; e < range.elements; ++e) all = mix(all, first[e]);
  };
  more(piece.gradient);
  more(piece.trained);
  for (const Range& state : piece.states) more(state);
  Contents sums;
  for (std::int64_t k = 0; k < piece.sums.at(round).elements; ++k)
    sums.push_back(mix(all, static_cast<int>(k)));
  return sums;
}

Hash InterpretedRank::given_for(const Piece& piece) const {
  const std::vector<int>& inputs = instruction().arguments.inputs;
  Hash given = whole(inputs.at(0));
  for (std::size_t round = 0; round + 1 < inputs.size(); ++round)
    given = mix(given, digest_of(piece.sums.at(round)));
  return given;
}

void InterpretedRank::sum_tensors() {
  const Arguments& arguments = instruction().arguments;
  const std::size_t round = arguments.inputs.size() - 1;
  const auto elements = program_.buffers.at(as_index(arguments.output)).elements;
  make(arguments.output)->assign(static_cast<std::size_t>(elements), nought);
  for (const int id : arguments.pieces) {
    const Piece& piece = program_.pieces.at(as_index(id));
    const Contents more = sums_of_piece(piece, round, given_for(piece),
                                        [&](const Range& range) { return part(range); });
    Hash* const sums = part(piece.sums.at(round));
    for (std::size_t k = 0; k < more.size(); ++k) sums[k] = add(sums[k], more[k]);
  }
}

void InterpretedRank::update() {
  for (const int id : instruction().arguments.pieces) {
    const Piece& piece = program_.pieces.at(as_index(id));
    update_piece(piece, part(piece.gradient), given_for(piece),
                 [&](const Range& range) { return part(range); });
  }
}

void InterpretedRank::update_piece(const Piece& piece, const Hash* gradient, Hash norm,
                                   const std::function<Hash*(const Range& range)>& part) {
  Hash* const trained = part(piece.trained);
  Hash* const copy = piece.compute_copy.buffer >= 0 ? part(piece.compute_copy) : nullptr;
  std::vector<Hash*> states;
  for (const Range& range : piece.states) states.push_back(part(range));
  for (std::int64_t e = 0; e < piece.gradient.elements; ++e) {
    const Hash step = mix(gradient[e], norm);
    Hash next = mix(step, trained[e]);
    for (std::size_t k = 0; k < states.size(); ++k) {
      states[k][e] = mix(mix(step, states[k][e]), static_cast<int>(k));
      next = mix(next, states[k][e]);
    }
    trained[e] = next;
    if (copy != nullptr) copy[e] = mix(next, 2);
  }
}

std::shared_ptr<IssuedUpdate> InterpretedRank::issued_update() {
  const Instruction& now = instruction();
  std::map<int, std::weak_ptr<Contents>> found;
  found[now.arguments.inputs.at(0)] = slot(now.arguments.inputs[0]);
  for (const StandIn& one : now.arguments.stand_ins) {
    if (!slots_.at(as_index(one.on_host))) make(one.on_host);
    found[one.on_host] = slot(one.on_host);
  }
  std::vector<Piece> pieces;
  for (const int id : now.arguments.pieces) pieces.push_back(piece_of(program_, now, id));
  const auto part = [found, where = where()](const Range& range) -> Hash* {
    const auto there = found.find(range.buffer);
    if (there == found.end()) throw Impossible(where + " updates what it does not name");
    const Storage storage = there->second.lock();
    if (!storage) throw Impossible(where + " uses what was given back");
    const auto size = static_cast<std::int64_t>(storage->size());
    if (range.offset < 0 || range.elements < 0 || range.offset > size - range.elements)
      throw Impossible(where + " uses elements that are not there");
    return storage->data() + range.offset;
  };
  const auto gradients = std::make_shared<std::vector<Contents>>();
  const auto norm = std::make_shared<Hash>();
  return std::make_shared<IssuedUpdate>(
      IssuedUpdate{[=, input = now.arguments.inputs[0]] {
                     const Storage storage = found.at(input).lock();
                     if (!storage) throw Impossible("a norm that was given back");
                     *norm = digest(*storage);
                     for (const Piece& piece : pieces) {
                       const Hash* const first = part(piece.gradient);
                       gradients->emplace_back(first, first + piece.gradient.elements);
                     }
                   },
                   [=] {
                     for (std::size_t k = 0; k < pieces.size(); ++k) {
                       // The host makes the sums of whole parameters itself.
                       const auto read = [&](const Range& range) -> Hash* {
                         return range == pieces[k].gradient ? (*gradients)[k].data() : part(range);
                       };
                       Hash given = *norm;
                       for (std::size_t round = 0; round < pieces[k].sums.size(); ++round) {
                         Hash sums = 17;
                         for (const Hash sum : sums_of_piece(pieces[k], round, given, read))
                           sums = mix(sums, add(nought, sum));
                         given = mix(given, sums);
                       }
                       update_piece(pieces[k], (*gradients)[k].data(), given, part);
                     }
                   }});
}

}  // namespace garonne::plan::test
