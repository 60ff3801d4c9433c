#include "exec/model_state.hpp"

#include <ATen/Functions.h>
#include <c10/util/strides.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "base/device.hpp"
#include "base/error.hpp"
#include "base/philox.hpp"
#include "exec/device_tables.hpp"
#include "exec/host_access.hpp"
#include "exec/stored_part.hpp"
#include "kernels/convert.hpp"
#include "kernels/initialise.hpp"
#include "nn/element_type.hpp"
#include "nn/tensor_options.hpp"
#include "plan/program/lasting_home.hpp"
#include "plan/step/workspace_buffer.hpp"

namespace garonne::exec {
namespace {

// Who fills tensors: kernels of a queue, or through staging the host.
struct Filler {
  Queue queue;
  Staging* staging = nullptr;
};

// Elements [first, first + elements) of a parameter at step 0.
void fill_initial(const Filler& filler, const nn::Model& model, int parameter, std::uint64_t seed,
                  std::int64_t first, const at::Tensor& destination) {
  const auto p = static_cast<std::size_t>(parameter);
  const nn::Initialisation& initialisation = model.initialisations[p];
  if (initialisation.deviation <= 0) {
    destination.fill_(initialisation.constant);
    return;
  }
  const nn::Box& box = model.boxes[p];
  const std::int64_t last = first + destination.numel();
  if (box.elements() < last) destination.zero_();
  const auto bytes = static_cast<std::int64_t>(destination.element_size());
  const std::int64_t end = box.elements();
  const auto fill = [&](std::int64_t in_box, std::int64_t in_global, std::int64_t elements,
                        double factor) {
    const PhiloxKey key = philox_key(seed, model.graph.parameters[p].name);
    const kernels::ElementType type = nn::element_type_of(destination);
    const double deviation = initialisation.deviation * factor;
    const at::Tensor target = destination.view({-1}).narrow(0, in_box - first, elements);
    if (filler.staging == nullptr) {
      kernels::fill_normal(filler.queue, type, target.data_ptr(), elements, key, deviation,
                           in_global);
      return;
    }
    filler.staging->fill(
        target.data_ptr(), elements * bytes,
        [&](std::int64_t at, std::span<std::byte> piece) {
          kernels::fill_normal(filler.staging->host_queue(), type, piece.data(),
                               static_cast<std::int64_t>(piece.size()) / bytes, key, deviation,
                               in_global + at / bytes);
        },
        "initial values");
  };
  for (const nn::Run& run : nn::runs_of(box, std::min(first, end), std::min(last, end))) {
    const std::int64_t head =
        std::clamp<std::int64_t>(initialisation.head_elements - run.in_global, 0, run.elements);
    if (head > 0) fill(run.in_box, run.in_global, head, initialisation.head_factor);
    if (head < run.elements) fill(run.in_box + head, run.in_global + head, run.elements - head, 1);
  }
}

// Without a number; `others`: what makes buffers elsewhere.
ModelState empty_state(const Queue& queue, Precision precision, Staging* staging,
                       BufferStore::Makers others) {
  ModelState state;
  state.queue = queue;
  state.staging = staging;
  state.precision = precision;
  others[Tier::Device] = [queue](at::IntArrayRef shape, at::ScalarType type) {
    return at::zeros(shape, nn::tensor_options(queue, type));
  };
  state.buffers = BufferStore(std::move(others));
  return state;
}

// A Program tells types of states by their bytes (base/state_spec.hpp).
at::ScalarType state_type_of(std::int64_t element_bytes) {
  return element_bytes == 8 ? at::kDouble : element_bytes == 4 ? at::kFloat : at::kByte;
}

at::ScalarType type_of(const plan::Buffer& buffer, Precision precision) {
  if (buffer.kind == plan::BufferKind::Parameter) return nn::compute_scalar_type(precision);
  if (buffer.kind == plan::BufferKind::OptimizerState) return state_type_of(buffer.element_bytes);
  if (buffer.kind == plan::BufferKind::Workspace) return at::kByte;
  return nn::state_scalar_type(precision);
}

// `homes`: where buffers of the Program last.
BufferPart part_of(const plan::Program& program, const std::vector<int>& homes,
                   const plan::Range& range, const plan::ParameterSpec& spec) {
  const std::vector<std::int64_t> flat = {range.elements};
  const int home = homes[static_cast<std::size_t>(range.buffer)];
  return {program.buffers[static_cast<std::size_t>(home)].name, range.offset,
          range.elements == spec.elements ? spec.shape : flat};
}

bool is_memory(const ModelState& state, const BufferPart& part) {
  return state.buffers.has(part.buffer) && !state.buffers.entry(part.buffer).lowered;
}

// Adds the piece and fills what it trains of the parameter.
void add_piece(ModelState& state, const nn::Model& model, std::uint64_t seed, TrainedPiece piece) {
  state.pieces.push_back(std::move(piece));
  const TrainedPiece& added = state.pieces.back();
  if (!is_memory(state, added.trained())) return;
  fill_initial({state.queue, state.staging}, model, added.index, seed, added.first,
               state.buffers.view(added.trained()));
}

// Those of the Program, or, where it does not train and says nothing of them, all of each parameter
// where it lasts.
std::vector<plan::Piece> pieces_of(const nn::Model& model, const plan::Program& program) {
  if (!program.pieces.empty()) return program.pieces;
  std::map<std::string, int> lasting;
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const plan::Buffer& buffer = program.buffers[id];
    if (buffer.live_at_start) lasting[plan::name_on_device(buffer)] = static_cast<int>(id);
  }
  std::vector<plan::Piece> pieces;
  for (std::size_t p = 0; p < model.graph.parameters.size(); ++p) {
    const plan::ParameterSpec& spec = model.graph.parameters[p];
    plan::Piece piece;
    piece.parameter = static_cast<int>(p);
    piece.trained = {lasting.at(spec.name), 0, spec.elements};
    if (const auto master = lasting.find(spec.name + ".master"); master != lasting.end())
      piece.compute_copy = std::exchange(piece.trained, {master->second, 0, spec.elements});
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// By number of the Program's lasting buffers: those of whole parameters have their shape.
std::map<int, std::vector<std::int64_t>> shapes_of(const nn::Model& model,
                                                   const plan::Program& program,
                                                   const std::vector<int>& homes) {
  std::map<int, std::vector<std::int64_t>> shapes;
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const plan::Buffer& buffer = program.buffers[id];
    if (!buffer.live_at_start) continue;
    const bool in_bytes = buffer.kind == plan::BufferKind::Workspace;
    shapes[static_cast<int>(id)] = {in_bytes ? buffer.bytes : buffer.elements};
  }
  for (const plan::Piece& piece : pieces_of(model, program)) {
    const plan::ParameterSpec& spec =
        model.graph.parameters.at(static_cast<std::size_t>(piece.parameter));
    const auto whole = [&](const plan::Range& range) {
      if (range.buffer < 0 || range.elements != spec.elements) return;
      const int home = homes[static_cast<std::size_t>(range.buffer)];
      if (program.buffers[static_cast<std::size_t>(home)].elements == spec.elements)
        shapes[home] = spec.shape;
    };
    whole(piece.trained);
    whole(piece.compute_copy);
    for (const plan::Range& range : piece.states) whole(range);
  }
  return shapes;
}

// But those that make_buffers_below() makes.
void make_buffers(ModelState& state, const plan::Program& program,
                  const std::map<int, std::vector<std::int64_t>>& shapes,
                  const std::set<Tier>& makes) {
  for (const auto& [id, shape] : shapes) {
    const plan::Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
    if (makes.contains(buffer.tier))
      state.buffers.make(buffer.name, buffer.tier, shape, type_of(buffer, state.precision));
  }
}

// Into the buffers that a Program has for them.
void fill_tables(ModelState& state, const nn::Model& model) {
  state.tables = fill_device_tables(
      model, state.precision, *state.staging, [&](const nn::ConstantTable& table) {
        const std::string name = plan::workspace_buffer(table.name);
        expect(state.buffers.has(name), "the Program has no buffer for " + table.name);
        return state.buffers.tensor(name);
      });
}

}  // namespace

at::ScalarType scalar_type_of(const StateSpec& state, Precision precision) {
  return state_type_of(state.element_bytes(state_bytes(precision)));
}

ModelState initial_state(const Queue& queue, const nn::Model& model, Precision precision,
                         std::uint64_t seed, const std::vector<StateSpec>& states,
                         Staging* staging) {
  ModelState state = empty_state(queue, precision, staging, {});
  const auto make = [&](const std::string& name, const std::vector<std::int64_t>& shape,
                        at::ScalarType type) {
    state.buffers.make(name, Tier::Device, shape, type);
    return BufferPart{name, 0, shape};
  };
  for (std::size_t p = 0; p < model.graph.parameters.size(); ++p) {
    const plan::ParameterSpec& spec = model.graph.parameters[p];
    TrainedPiece piece;
    piece.index = static_cast<int>(p);
    piece.parameter = make(spec.name, spec.shape, nn::compute_scalar_type(precision));
    if (has_master(precision))
      piece.master = make(spec.name + ".master", spec.shape, nn::state_scalar_type(precision));
    for (const StateSpec& kept : states) {
      const std::vector<std::int64_t> flat = {kept.blocks.count(spec.elements, spec.sides())};
      piece.states.push_back(make(spec.name + "." + kept.name,
                                  kept.blocks.elementwise() ? spec.shape : flat,
                                  scalar_type_of(kept, precision)));
    }
    add_piece(state, model, seed, std::move(piece));
  }
  if (staging != nullptr) {
    state.tables = make_device_tables(queue, model, precision, *staging);
    for (const auto& [table, copy] : state.tables)
      state.buffers.put(plan::workspace_buffer(table), Tier::Device, copy);
  }
  refresh_compute_copies(state);
  return state;
}

ModelState initial_state(const Queue& queue, const nn::Model& model, Precision precision,
                         std::uint64_t seed, const plan::Program& program, Staging* staging,
                         BufferStore::Makers below) {
  std::set<Tier> makes = {Tier::Device};
  for (const auto& [tier, maker] : below) makes.insert(tier);
  ModelState state = empty_state(queue, precision, staging, std::move(below));
  const std::vector<int> homes = plan::lasting_homes(program);
  make_buffers(state, program, shapes_of(model, program, homes), makes);
  if (staging != nullptr) fill_tables(state, model);
  for (const plan::Piece& piece : pieces_of(model, program)) {
    const plan::ParameterSpec& spec =
        model.graph.parameters[static_cast<std::size_t>(piece.parameter)];
    TrainedPiece here;
    here.index = piece.parameter;
    here.first = piece.first;
    here.parameter = part_of(program, homes, piece.trained, spec);
    if (piece.compute_copy.buffer >= 0)
      here.master =
          std::exchange(here.parameter, part_of(program, homes, piece.compute_copy, spec));
    for (const plan::Range& range : piece.states)
      here.states.push_back(part_of(program, homes, range, spec));
    add_piece(state, model, seed, std::move(here));
  }
  for (const plan::Instruction& instruction : program.instructions) {
    if (instruction.arguments.exchanged >= 0) continue;  // of a node
    if (instruction.operation == plan::Operation::ReduceScatter) state.in_shards = true;
    const bool in_place = gathers_parameters(instruction) &&
                          instruction.arguments.output == instruction.arguments.inputs.at(0);
    if (!in_place) continue;
    const int home = homes[static_cast<std::size_t>(instruction.arguments.output)];
    state.gathered.push_back(program.buffers[static_cast<std::size_t>(home)].name);
  }
  refresh_compute_copies(state);
  return state;
}

ParameterState ModelState::parameter(std::size_t number) const {
  const TrainedPiece& piece = pieces.at(number);
  ParameterState tensors;
  tensors.index = piece.index;
  tensors.first = piece.first;
  tensors.parameter = buffers.view(piece.parameter);
  if (piece.master) tensors.master = buffers.view(*piece.master);
  for (const BufferPart& part : piece.states) tensors.states.push_back(buffers.view(part));
  return tensors;
}

at::Tensor on_host(const ModelState& state, const at::Tensor& tensor) {
  return state.staging == nullptr || !tensor.defined() ? tensor
                                                       : copied_out(tensor, *state.staging);
}

void gather_parameters(ModelState& state, dist::Transport* data) {
  if (data == nullptr) return;
  dist::Transport& transport = *data;
  const auto gather = [&](const at::Tensor& whole) {
    transport.wait(transport.all_gather(whole.data_ptr(), whole.numel(),
                                        static_cast<std::int64_t>(whole.element_size())));
  };
  for (const std::string& name : state.gathered) {
    const BufferStore::Entry& entry = state.buffers.entry(name);
    if (!entry.lowered) {
      gather(entry.tensor);
      continue;
    }
    const std::int64_t elements =
        entry.lowered->bytes / static_cast<std::int64_t>(c10::elementSize(entry.lowered->type));
    const StoredPart stored(state, {name, 0, {elements}});
    const at::Tensor whole = stored.whole();
    gather(whole);
    stored.set_whole(whole);
  }
}

namespace {

// Through a piece of memory, since neither of them need be any.
void refresh_below(const ModelState& state, const StoredPart& master, const StoredPart& copy) {
  constexpr std::int64_t most = device::disk_staging_piece_bytes / std::int64_t{sizeof(float)};
  const Queue queue = state.staging == nullptr ? state.queue : state.staging->host_queue();
  std::vector<float> numbers(static_cast<std::size_t>(std::min(most, copy.elements())));
  for (std::int64_t first = 0; first < copy.elements(); first += most) {
    const std::int64_t elements = std::min(most, copy.elements() - first);
    std::int64_t read = 0;
    master.read(first, elements, [&](std::span<const std::byte> some) {
      std::memcpy(reinterpret_cast<std::byte*>(numbers.data()) + read, some.data(), some.size());
      read += static_cast<std::int64_t>(some.size());
    });
    copy.fill(first, elements, [&](std::int64_t at, std::span<std::byte> some) {
      kernels::to_bfloat16(queue, numbers.data() + at / copy.element_bytes(), some.data(),
                           static_cast<std::int64_t>(some.size()) / copy.element_bytes());
    });
  }
}

}  // namespace

void refresh_compute_copies(ModelState& state) {
  for (const TrainedPiece& piece : state.pieces) {
    // Of what is still to be made there is nothing yet.
    if (!piece.master || !state.buffers.has(piece.master->buffer) ||
        !state.buffers.has(piece.parameter.buffer))
      continue;
    if (!is_memory(state, piece.parameter)) {
      refresh_below(state, StoredPart(state, *piece.master), StoredPart(state, piece.parameter));
      continue;
    }
    const at::Tensor copy = state.buffers.view(piece.parameter);
    if (is_memory(state, *piece.master)) {
      const at::Tensor master = state.buffers.view(*piece.master);
      kernels::to_bfloat16(state.queue, master.const_data_ptr<float>(), copy.data_ptr(),
                           copy.numel());
      continue;
    }
    const StoredPart master(state, *piece.master);
    const auto count = [](std::span<const std::byte> some) {
      return static_cast<std::int64_t>(some.size() / sizeof(float));
    };
    if (state.staging != nullptr) {
      const auto size = static_cast<std::int64_t>(copy.element_size());
      state.staging->fill(
          copy.data_ptr(), copy.numel() * size,
          [&](std::int64_t at, std::span<std::byte> made) {
            master.read(at / size, static_cast<std::int64_t>(made.size()) / size,
                        [&](std::span<const std::byte> some) {
                          kernels::to_bfloat16(state.staging->host_queue(),
                                               reinterpret_cast<const float*>(some.data()),
                                               made.data(), count(some));
                        });
          },
          piece.parameter.buffer);
      continue;
    }
    std::int64_t first = 0;
    master.read(0, copy.numel(), [&](std::span<const std::byte> some) {
      const at::Tensor part = copy.view({-1}).narrow(0, first, count(some));
      kernels::to_bfloat16(state.queue, reinterpret_cast<const float*>(some.data()),
                           part.data_ptr(), count(some));
      first += count(some);
    });
  }
}

void make_buffers_below(ModelState& state, const nn::Model& model, const plan::Program& program,
                        std::uint64_t seed, const MemoryBelow& below) {
  state.disk = below.disk;
  const std::vector<int> homes = plan::lasting_homes(program);
  for (const auto& [id, shape] : shapes_of(model, program, homes)) {
    const plan::Buffer& buffer = program.buffers[static_cast<std::size_t>(id)];
    if (state.buffers.has(buffer.name)) continue;
    Lowered lowered;
    lowered.memory = buffer.tier == Tier::Host ? below.host
                     : below.disk != nullptr   ? &below.disk->memory()
                                               : nullptr;
    expect(buffer.tier != Tier::Device && lowered.memory != nullptr,
           fmt::format("{} is on the tier {}, which is not there", buffer.name,
                       to_string(buffer.tier)));
    lowered.type = type_of(buffer, state.precision);
    lowered.bytes = buffer.elements * static_cast<std::int64_t>(c10::elementSize(lowered.type));
    lowered.block = lowered.memory->allocate(lowered.bytes, buffer.name);
    // A new file is zero wherever nobody wrote.
    if (buffer.tier == Tier::Host)
      std::memset(lowered.block.data, 0, static_cast<std::size_t>(lowered.block.bytes));
    lowered.sizes = shape;
    const auto strides = c10::contiguous_strides(shape);
    lowered.strides.assign(strides.begin(), strides.end());
    lowered.lasts = true;
    state.buffers.put(buffer.name, std::move(lowered));
  }
  // What is below is the host's to fill.
  const Queue queue = state.staging == nullptr ? state.queue : state.staging->host_queue();
  for (const TrainedPiece& piece : state.pieces) {
    const BufferPart& trained = piece.trained();
    if (is_memory(state, trained)) continue;
    const StoredPart stored(state, trained);
    stored.fill(0, stored.elements(), [&](std::int64_t at, std::span<std::byte> some) {
      const std::int64_t bytes = stored.element_bytes();
      const at::Tensor part =
          at::from_blob(some.data(), {static_cast<std::int64_t>(some.size()) / bytes},
                        nn::tensor_options(queue, stored.type()));
      fill_initial({queue, nullptr}, model, piece.index, seed, piece.first + at / bytes, part);
    });
  }
  refresh_compute_copies(state);
}

}  // namespace garonne::exec
