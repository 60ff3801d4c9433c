// Of the transport over NCCL: sums and gathers, in pieces.
#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "dist/nccl_transport.hpp"

namespace garonne::dist {

// A sum that is under way. Where what travels is narrower than what is kept, staging has as many
// slots again behind those of the reduction: for what is sent of the other members' pieces.
struct NcclTransport::Sum {
  std::byte* data = nullptr;
  std::int64_t elements = 0;
  SumType type = ScalarType::Float32;
  std::byte* staging = nullptr;
  int members = 1;
  int member = 0;

  std::int64_t begin(int piece) const { return piece_begin(elements, members, piece); }
  std::int64_t length(int piece) const {
    return piece_end(elements, members, piece) - begin(piece);
  }
  std::int64_t wire_bytes() const { return scalar_bytes(type.wire); }
  std::byte* kept(int piece) const { return data + begin(piece) * scalar_bytes(type.kept); }
  std::byte* slot(int number) const {
    return staging + number * piece_elements(elements, members) * wire_bytes();
  }
  // What this member contributes to another's piece.
  std::byte* contribution(int piece) const {
    if (!type.narrows()) return kept(piece);
    return slot(members - 1 + (piece < member ? piece : piece - 1));
  }
  // In the data as it is kept; all else is as it travels.
  bool is_kept(const PiecePlace& place) const { return place.slot < 0 && place.piece == member; }
  std::byte* address(const PiecePlace& place) const {
    if (place.slot >= 0) return slot(place.slot);
    return place.piece == member ? kept(member) : contribution(place.piece);
  }
};

Ticket NcclTransport::all_reduce_sum(void* data, std::int64_t elements, SumType type,
                                     void* staging) {
  expect_sum_type(type);
  return put(*collectives_, "all-reduce", [&] {
    const Sum sum{static_cast<std::byte*>(data),    elements, type,
                  static_cast<std::byte*>(staging), size(),   member()};
    reduce_pieces(sum);
    if (type.narrows() && size() > 1) {
      gather_narrow(sum);
    } else {
      gather_pieces(sum.data, elements, sum.wire_bytes());
    }
  });
}

Ticket NcclTransport::reduce_scatter_sum(void* data, std::int64_t elements, SumType type,
                                         void* staging) {
  expect_sum_type(type);
  return put(*collectives_, "reduce-scatter", [&] {
    reduce_pieces({static_cast<std::byte*>(data), elements, type, static_cast<std::byte*>(staging),
                   size(), member()});
  });
}

void NcclTransport::launch_sum(void* result, const DeviceTerms& terms, std::int64_t elements,
                               SumType type) {
  collectives_->launched(parts_.sum(result, terms, elements, type, collectives_->stream()));
}

void NcclTransport::convert(void* result, const void* term, std::int64_t elements, ScalarType to) {
  DeviceTerms terms;
  terms.terms[terms.count++] = term;
  if (to == ScalarType::BFloat16) terms.wide = 0;
  launch_sum(result, terms, elements, {to, ScalarType::BFloat16});
}

// The pieces before the own one lie in a row, and those behind it.
void NcclTransport::narrow_contributions(const Sum& sum) {
  if (member() > 0)
    convert(sum.contribution(0), sum.data, sum.begin(member()), ScalarType::BFloat16);
  if (member() + 1 < size()) {
    convert(sum.contribution(member() + 1), sum.kept(member() + 1),
            sum.elements - sum.begin(member() + 1), ScalarType::BFloat16);
  }
}

void NcclTransport::reduce_pieces(const Sum& sum) {
  expect(sum.elements >= 0, "a collective has no fewer than zero elements");
  expect(sum.elements == 0 || (sum.data && (size() == 1 || sum.staging)),
         "a collective lacks a buffer");
  if (sum.elements == 0) return;
  const auto bytes = [&](const PiecePlace& place) {
    return sum.length(place.piece) * sum.wire_bytes();
  };
  if (sum.type.narrows() && size() > 1) narrow_contributions(sum);
  for (const ReductionStep& step : reduction_) {
    collectives_->grouped([&] {
      for (const auto& [peer, place] : step.sends)
        collectives_->send(sum.address(place), bytes(place), peer);
      for (const auto& [peer, place] : step.receives)
        collectives_->receive(sum.address(place), bytes(place), peer);
    });
    for (const PieceSum& piece : step.sums) {
      // A kernel takes so many terms. A partial sum stands in staging, in the place of a term that
      // went into it, and is the first term of the next kernel.
      std::size_t next = 0;
      std::byte* partial = nullptr;
      while (next < piece.terms.size()) {
        DeviceTerms terms;
        if (partial != nullptr) terms.terms[terms.count++] = partial;
        while (next < piece.terms.size() && terms.count < most_device_terms) {
          const PiecePlace& term = piece.terms[next++];
          if (term.slot >= 0) partial = sum.address(term);
          if (sum.type.narrows() && sum.is_kept(term)) terms.wide = terms.count;
          terms.terms[terms.count++] = sum.address(term);
        }
        const bool last = next == piece.terms.size();
        std::byte* const to = last ? sum.address(piece.result) : partial;
        const bool kept = last && sum.is_kept(piece.result);
        launch_sum(to, terms, sum.length(piece.result.piece),
                   {kept ? sum.type.kept : sum.type.wire, sum.type.wire});
        partial = to;
      }
    }
  }
}

// By way of staging, of which the reduction has left all free: it is large enough from two members
// on.
void NcclTransport::gather_narrow(const Sum& sum) {
  if (sum.elements == 0) return;
  std::byte* const whole = sum.staging;
  convert(whole + sum.begin(member()) * sum.wire_bytes(), sum.kept(member()), sum.length(member()),
          ScalarType::BFloat16);
  gather_pieces(whole, sum.elements, sum.wire_bytes());
  convert(sum.data, whole, sum.elements, ScalarType::Float32);
}

void NcclTransport::gather_pieces(std::byte* data, std::int64_t elements,
                                  std::int64_t element_bytes) {
  if (elements == 0) return;
  const auto place = [&](int piece) {
    return data + piece_begin(elements, size(), piece) * element_bytes;
  };
  const auto length = [&](int piece) {
    return (piece_end(elements, size(), piece) - piece_begin(elements, size(), piece)) *
           element_bytes;
  };
  // NCCL's own has pieces of one size. Nothing is added, so the bits are the same.
  if (elements % size() == 0) {
    collectives_->all_gather(place(member()), data, length(member()));
    return;
  }
  collectives_->grouped([&] {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == member()) continue;
      collectives_->send(place(member()), length(member()), peer);
      collectives_->receive(place(peer), length(peer), peer);
    }
  });
}

}  // namespace garonne::dist
