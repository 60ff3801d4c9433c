// The collective behind all-reduce, reduce-scatter and all-gather over MPI. For the room's own use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dist/mpi_calls.hpp"
#include "dist/transport.hpp"

namespace garonne::dist {

// What is exchanged, equal on all members but for `member` and the addresses.
struct ExchangeOrder {
  MPI_Comm communicator = MPI_COMM_NULL;  // of the group; ranks are member indices
  int tag = 0;                            // and tag + 1 for the second half
  int members = 1;
  int member = 0;
  bool reduce = false;  // the own piece becomes the sum of all members' contributions
  bool gather = false;  // then every member gets everybody's piece
  std::byte* data = nullptr;
  std::int64_t elements = 0;
  std::int64_t element_bytes = 0;
  SumType type = ScalarType::Float32;  // of a sum
  // Of a sum: a slot of a piece for what each other member contributes to the own one. Where what
  // travels is narrower than what is kept, behind them one for what each is sent of its piece, and
  // is gathered of it.
  std::byte* staging = nullptr;
};

// Every member sends to every other directly. Pieces travel in chunks, so that a chunk is added
// while the next ones travel and goes out again while it is in the cache.
class OrderedExchange final : public PendingOperation {
 public:
  explicit OrderedExchange(const ExchangeOrder& order);

  void start() override;
  Advance advance() override;

 private:
  enum class Kind { ReduceSend, ReduceReceive, GatherSend, GatherReceive };
  struct Part {
    Kind kind;
    int peer;
    std::int64_t chunk;
  };
  struct Range {
    std::int64_t begin;
    std::int64_t count;
  };
  struct Peer {
    std::vector<bool> sent;        // chunks of its piece that it may now overwrite
    std::int64_t next_gather = 0;  // chunk of its piece that is to be received next
  };

  std::int64_t chunks_of(int member) const;
  Range chunk_of(int member, std::int64_t chunk) const;  // in elements of `data`
  int slot_of(int member) const;
  std::byte* kept(int member, std::int64_t chunk) const;
  std::byte* staged(int member, std::int64_t chunk) const;
  // Where the chunk of another member's piece leaves from, and comes back to.
  std::byte* travelling(int member, std::int64_t chunk) const;
  void post(Part part, void* buffer, std::int64_t count, bool send, int tag);
  void post_gather_receives(int peer);
  void post_gather_sends(std::int64_t chunk);
  void completed(const Part& part);
  void add_arrived();

  ExchangeOrder order_;
  bool narrows_ = false;
  std::int64_t wire_bytes_ = 0;  // of an element
  std::int64_t piece_ = 0;
  std::int64_t chunk_ = 1;  // elements
  std::vector<MPI_Request> requests_;
  std::vector<Part> parts_;  // of the request at the same index
  std::vector<int> finished_;
  std::vector<Peer> peers_;    // by member
  std::vector<int> missing_;   // by chunk of the own piece: contributions to come
  std::int64_t next_sum_ = 0;  // chunk of the own piece
  std::size_t open_requests_ = 0;
};

}  // namespace garonne::dist
