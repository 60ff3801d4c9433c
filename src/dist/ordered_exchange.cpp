#include "dist/ordered_exchange.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "dist/ordered_sum.hpp"

namespace garonne::dist {
namespace {

// Small enough to stay in a second-level cache between arrival, addition and departure, large
// enough for the wire; and few enough that looking through all requests costs nothing.
constexpr std::int64_t chunk_bytes = 1 << 19;
constexpr std::int64_t most_chunks = 64;

}  // namespace

OrderedExchange::OrderedExchange(const ExchangeOrder& order)
    : order_(order),
      narrows_(order.reduce && order.type.narrows()),
      wire_bytes_(narrows_ ? scalar_bytes(order.type.wire) : order.element_bytes) {
  piece_ = piece_elements(order_.elements, order_.members);
  const std::int64_t at_least = (piece_ + most_chunks - 1) / most_chunks;
  chunk_ = std::max({std::int64_t{1}, chunk_bytes / order_.element_bytes, at_least});
  expect(chunk_ <= std::numeric_limits<int>::max() / order_.element_bytes,
         "a buffer of more than 128 GiB is reduced in several parts");
}

std::int64_t OrderedExchange::chunks_of(int member) const {
  const std::int64_t length = piece_end(order_.elements, order_.members, member) -
                              piece_begin(order_.elements, order_.members, member);
  return (length + chunk_ - 1) / chunk_;
}

OrderedExchange::Range OrderedExchange::chunk_of(int member, std::int64_t chunk) const {
  const std::int64_t begin = piece_begin(order_.elements, order_.members, member) + chunk * chunk_;
  const std::int64_t end = piece_end(order_.elements, order_.members, member);
  return {begin, std::min(chunk_, end - begin)};
}

int OrderedExchange::slot_of(int member) const {
  return member < order_.member ? member : member - 1;
}

std::byte* OrderedExchange::kept(int member, std::int64_t chunk) const {
  return order_.data + chunk_of(member, chunk).begin * order_.element_bytes;
}

std::byte* OrderedExchange::staged(int member, std::int64_t chunk) const {
  return order_.staging + (slot_of(member) * piece_ + chunk * chunk_) * wire_bytes_;
}

std::byte* OrderedExchange::travelling(int member, std::int64_t chunk) const {
  if (!narrows_) return kept(member, chunk);
  const std::int64_t slot = order_.members - 1 + slot_of(member);
  return order_.staging + (slot * piece_ + chunk * chunk_) * wire_bytes_;
}

void OrderedExchange::post(Part part, void* buffer, std::int64_t count, bool send, int tag) {
  const int bytes = static_cast<int>(count * wire_bytes_);
  MPI_Request request = MPI_REQUEST_NULL;
  const int code =
      send ? MPI_Isend(buffer, bytes, MPI_BYTE, part.peer, tag, order_.communicator, &request)
           : MPI_Irecv(buffer, bytes, MPI_BYTE, part.peer, tag, order_.communicator, &request);
  if (code != MPI_SUCCESS) {
    check_mpi(code, std::string(send ? "send to" : "receive from") + " member " +
                        std::to_string(part.peer) + " of a group of " +
                        std::to_string(order_.members));
  }
  requests_.push_back(request);
  parts_.push_back(part);
  ++open_requests_;
}

void OrderedExchange::start() {
  peers_.resize(static_cast<std::size_t>(order_.members));
  const std::int64_t own_chunks = chunks_of(order_.member);
  missing_.assign(static_cast<std::size_t>(own_chunks), order_.reduce ? order_.members - 1 : 0);
  // Everybody starts with the next member, so that nobody is sent to by all at once.
  for (int step = 1; step < order_.members; ++step) {
    const int peer = (order_.member + step) % order_.members;
    const std::int64_t chunks = chunks_of(peer);
    peers_[static_cast<std::size_t>(peer)].sent.assign(static_cast<std::size_t>(chunks),
                                                       !order_.reduce);
    if (!order_.reduce) continue;
    for (std::int64_t chunk = 0; chunk < own_chunks; ++chunk) {
      const Range range = chunk_of(order_.member, chunk);
      post({Kind::ReduceReceive, peer, chunk}, staged(peer, chunk), range.count, false, order_.tag);
    }
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::int64_t count = chunk_of(peer, chunk).count;
      std::byte* const leaving = travelling(peer, chunk);
      if (narrows_) narrow(leaving, kept(peer, chunk), count);
      post({Kind::ReduceSend, peer, chunk}, leaving, count, true, order_.tag);
    }
  }
  if (order_.gather && !order_.reduce) {
    for (int peer = 0; peer < order_.members; ++peer) post_gather_receives(peer);
  }
  add_arrived();
}

// A chunk of a peer's piece is received over the contribution to it, so once that is on its way. In
// order, since chunks of one peer share a tag.
void OrderedExchange::post_gather_receives(int peer) {
  if (!order_.gather || peer == order_.member) return;
  Peer& state = peers_[static_cast<std::size_t>(peer)];
  const auto chunks = static_cast<std::int64_t>(state.sent.size());
  while (state.next_gather < chunks && state.sent[static_cast<std::size_t>(state.next_gather)]) {
    post({Kind::GatherReceive, peer, state.next_gather}, travelling(peer, state.next_gather),
         chunk_of(peer, state.next_gather).count, false, order_.tag + 1);
    ++state.next_gather;
  }
}

void OrderedExchange::post_gather_sends(std::int64_t chunk) {
  const std::int64_t count = chunk_of(order_.member, chunk).count;
  std::byte* leaving = kept(order_.member, chunk);
  if (narrows_) {
    // What the first of the others contributed is in the sum, and its place is free. All members
    // are to have the same bits.
    const int first = order_.member == 0 ? 1 : 0;
    narrow(staged(first, chunk), leaving, count);
    widen(leaving, staged(first, chunk), count);
    leaving = staged(first, chunk);
  }
  for (int step = 1; step < order_.members; ++step) {
    const int peer = (order_.member + step) % order_.members;
    post({Kind::GatherSend, peer, chunk}, leaving, count, true, order_.tag + 1);
  }
}

// Adds the chunks of the own piece whose contributions are all here, in order, and sends them on.
void OrderedExchange::add_arrived() {
  const auto own_chunks = static_cast<std::int64_t>(missing_.size());
  std::vector<const void*> terms(static_cast<std::size_t>(order_.members));
  while (next_sum_ < own_chunks && missing_[static_cast<std::size_t>(next_sum_)] == 0) {
    if (order_.reduce) {
      std::byte* const own = kept(order_.member, next_sum_);
      for (int member = 0; member < order_.members; ++member) {
        terms[static_cast<std::size_t>(member)] =
            member == order_.member ? own : staged(member, next_sum_);
      }
      sum_in_order(own, terms, chunk_of(order_.member, next_sum_).count, order_.type);
    }
    if (order_.gather) post_gather_sends(next_sum_);
    ++next_sum_;
  }
}

void OrderedExchange::completed(const Part& part) {
  --open_requests_;
  if (part.kind == Kind::ReduceReceive) --missing_[static_cast<std::size_t>(part.chunk)];
  if (part.kind == Kind::ReduceSend) {
    peers_[static_cast<std::size_t>(part.peer)].sent[static_cast<std::size_t>(part.chunk)] = true;
    post_gather_receives(part.peer);
  }
  if (part.kind == Kind::GatherReceive && narrows_) {
    widen(kept(part.peer, part.chunk), travelling(part.peer, part.chunk),
          chunk_of(part.peer, part.chunk).count);
  }
}

Advance OrderedExchange::advance() {
  if (open_requests_ == 0) return Advance::Done;
  finished_.resize(requests_.size());
  int count = 0;
  check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                         finished_.data(), MPI_STATUSES_IGNORE),
            "exchange between the " + std::to_string(order_.members) + " members of a group");
  if (count == 0 || count == MPI_UNDEFINED) return Advance::None;
  for (int index = 0; index < count; ++index) {
    const Part part = parts_[static_cast<std::size_t>(finished_[static_cast<std::size_t>(index)])];
    completed(part);
  }
  add_arrived();
  return open_requests_ == 0 ? Advance::Done : Advance::Some;
}

}  // namespace garonne::dist
