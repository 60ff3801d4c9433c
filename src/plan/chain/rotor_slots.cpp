#include "plan/chain/rotor_slots.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "plan/chain/shifted_minimum.hpp"

namespace garonne::plan {
namespace {

// Cells of a row that are made at a time. Candidates that cannot win in a tile are left out of it;
// the fewer cells, the more often that happens.
constexpr std::int64_t tile_cells = 512;
constexpr std::size_t chunk_cells = std::size_t{1} << 20;

}  // namespace

RotorSlots::RotorSlots(const RotorModel& model, std::int64_t most_bytes, std::int64_t slot_bytes)
    : index_(model.blocks()),
      slot_bytes_(slot_bytes),
      slots_(most_bytes / slot_bytes),
      rows_(index_.size()) {
  expect(slot_bytes > 0 && most_bytes >= 0, "slots have bytes");
  for (int last = 0; last < model.blocks(); ++last) {
    for (int first = last; first >= 0; --first) {
      candidates_.clear();
      const Row* rest = first < last ? &rows_[index_(first + 1, last)] : nullptr;
      for (int option = 0; option < model.options(first); ++option) {
        offer({static_cast<float>(model.excess(first, option)), rest, nullptr,
               round_up(model.saved(first, option)), 0,
               round_up(model.chain_need(first, last, option))});
      }
      std::int64_t pass = 0;
      for (int j = first + 1; j <= last; ++j) {
        pass = std::max(pass, model.pass_need(first, j - 1));
        offer({static_cast<float>(model.pass_seconds(first, j)), &rows_[index_(j, last)],
               &rows_[index_(first, j - 1)], round_up(model.value(j)),
               round_up(model.gradients(j, last)), round_up(model.value(last + 1) + pass)});
      }
      write_row(rows_[index_(first, last)]);
    }
  }
  candidates_ = {};
}

std::int64_t RotorSlots::round_up(std::int64_t bytes) const {
  return bytes / slot_bytes_ + (bytes % slot_bytes_ != 0 ? 1 : 0);
}

void RotorSlots::offer(Candidate candidate) {
  candidate.least = candidate.constant;
  const auto add = [&](const Row* row, std::int64_t shift, std::int64_t& row_last) {
    if (row == nullptr) return true;
    if (row->begin == row->end) return false;
    candidate.begin = std::max(candidate.begin, row->begin + shift);
    row_last = row->end - 1 + shift;
    const std::int64_t within = std::min(row->end - 1, slots_ - shift);
    if (within < row->begin) return false;
    candidate.least += row->at(within);
    return true;
  };
  if (add(candidate.one, candidate.one_shift, candidate.one_last) &&
      add(candidate.two, candidate.two_shift, candidate.two_last) && candidate.begin <= slots_) {
    candidates_.push_back(candidate);
  }
}

float* RotorSlots::allocate(std::size_t count) {
  if (count > left_in_chunk_) {
    left_in_chunk_ = std::max(count, chunk_cells);
    chunks_.push_back(std::make_unique_for_overwrite<float[]>(left_in_chunk_));
    allocated_ += left_in_chunk_;
    next_cell_ = chunks_.back().get();
  }
  float* cells = next_cell_;
  next_cell_ += count;
  left_in_chunk_ -= count;
  std::fill_n(cells, count, std::numeric_limits<float>::infinity());
  return cells;
}

void RotorSlots::write_row(Row& row) {
  if (candidates_.empty()) return;
  float least = candidates_[0].least;
  for (const auto& candidate : candidates_) least = std::min(least, candidate.least);
  // From where the best that can be is reached, all cells are equal.
  row.begin = slots_;
  row.end = slots_ + 1;
  for (const auto& candidate : candidates_) {
    row.begin = std::min(row.begin, candidate.begin);
    if (candidate.least <= least) row.end = std::min(row.end, candidate.reaches_least() + 1);
  }
  row.cells = allocate(static_cast<std::size_t>(row.end - row.begin));
  lowest_.resize(candidates_.size());
  for (std::int64_t tile = row.begin; tile < row.end; tile += tile_cells) {
    const std::int64_t tile_end = std::min(tile + tile_cells, row.end);
    // Rows fall with memory: a candidate is lowest in the last cell, the result highest in the
    // first.
    std::size_t best = 0;
    for (std::size_t n = 0; n < candidates_.size(); ++n) {
      lowest_[n] = candidates_[n].at(tile_end - 1);
      if (lowest_[n] < lowest_[best]) best = n;
    }
    write_part(row, candidates_[best], tile, tile_end);
    const float& highest = row.cells[tile - row.begin];
    for (std::size_t n = 0; n < candidates_.size(); ++n) {
      if (n != best && lowest_[n] < highest) write_part(row, candidates_[n], tile, tile_end);
    }
  }
}

// Offers a candidate to the cells in [slot, end), in pieces in which the same of its rows vary.
void RotorSlots::write_part(const Row& row, const Candidate& candidate, std::int64_t slot,
                            std::int64_t end) {
  const auto last_cell = [](const Row* of) { return of == nullptr ? 0.0F : of->at(of->end - 1); };
  slot = std::max(slot, candidate.begin);
  while (slot < end) {
    const bool one_varies = slot < candidate.one_last;
    const bool two_varies = slot < candidate.two_last;
    const std::int64_t piece_end = std::min(
        {end, one_varies ? candidate.one_last : end, two_varies ? candidate.two_last : end});
    const auto count = static_cast<std::size_t>(piece_end - slot);
    float* result = row.cells + (slot - row.begin);
    const float* one = nullptr;
    const float* two = nullptr;
    if (one_varies)
      one = candidate.one->cells + (slot - candidate.one_shift - candidate.one->begin);
    if (two_varies)
      two = candidate.two->cells + (slot - candidate.two_shift - candidate.two->begin);
    if (one_varies && two_varies) {
      take_minimum_of_sum(result, one, two, candidate.constant, count);
    } else if (one_varies) {
      take_minimum(result, one, candidate.constant + last_cell(candidate.two), count);
    } else if (two_varies) {
      take_minimum(result, two, candidate.constant + last_cell(candidate.one), count);
    } else {
      take_minimum(result, candidate.least, count);
    }
    slot = piece_end;
  }
}

double RotorSlots::excess(int first, int last, std::int64_t bytes) const {
  const Row& row = rows_[index_(first, last)];
  if (bytes < 0 || row.begin == row.end) return no_answer;
  const std::int64_t slot = std::min(bytes / slot_bytes_, row.end - 1);
  if (slot < row.begin) return no_answer;
  return static_cast<double>(row.at(slot));
}

std::int64_t count_cells(const RotorModel& model, const RotorMinimum& minimum,
                         std::int64_t most_bytes, std::int64_t slot_bytes) {
  // Bytes from which on nothing is gained: all fastest options fit.
  std::int64_t cells = 0;
  for (int last = 0; last < model.blocks(); ++last) {
    std::int64_t enough = 0;
    for (int first = last; first >= 0; --first) {
      std::int64_t least = std::numeric_limits<std::int64_t>::max();
      for (int option = 0; option < model.options(first); ++option) {
        if (model.excess(first, option) > 0) continue;
        std::int64_t need = model.chain_need(first, last, option);
        if (first < last) need = std::max(need, model.saved(first, option) + enough);
        least = std::min(least, need);
      }
      enough = least;
      const std::int64_t top = std::min(enough, most_bytes);
      const std::int64_t bottom = minimum.bytes(first, last);
      if (top >= bottom) cells += (top - bottom) / slot_bytes + 2;
    }
  }
  return cells;
}

std::int64_t rounding_loss(const RotorModel& model, std::int64_t slot_bytes) {
  const auto lost = [&](std::int64_t bytes) {
    return (slot_bytes - bytes % slot_bytes) % slot_bytes;
  };
  // On the way from the whole chain into an interval every index is passed at most once: by value j
  // being stored, by block j-1 being kept, or, for parameter gradients, by the right side being
  // done.
  std::int64_t loss = slot_bytes - 1;
  for (int block = 0; block < model.blocks(); ++block) {
    std::int64_t worst = block + 1 < model.blocks() ? lost(model.value(block + 1)) : 0;
    for (int option = 0; option < model.options(block); ++option)
      worst = std::max(worst, lost(model.saved(block, option)));
    if (model.gradients(block, block) > 0) worst += slot_bytes - 1;
    loss += worst;
  }
  return loss;
}

}  // namespace garonne::plan
