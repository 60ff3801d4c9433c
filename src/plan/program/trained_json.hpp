// What a rank trains, in the file format of Programs: ranges, pieces, buckets, and how many numbers
// states and sums have.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "base/json_input.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// What one number of a file may be, so that sums over a file are numbers too.
inline constexpr std::int64_t most_file_bytes = std::int64_t{1} << 48;

// Ranges are many, so they are short: [buffer, first element, elements].
nlohmann::ordered_json to_json(const Range& range);
nlohmann::ordered_json to_json(const std::vector<Range>& ranges);
nlohmann::ordered_json to_json(const Piece& piece);
nlohmann::ordered_json to_json(const Bucket& bucket);
nlohmann::ordered_json to_json(const StateBlocks& blocks);
nlohmann::ordered_json to_json(const TensorSums& sums);

// What is not understood is refused by its place.
int index_of(const JsonPlace& place);
// An index, or -1 where there is none.
int index_or_none(const JsonPlace& place, std::string_view key);
std::int64_t bytes_of(const JsonPlace& place);
Range range_of(const JsonPlace& place);
// Empty where there is no such key.
std::vector<Range> ranges_of(const JsonPlace& source, std::string_view key);
Piece piece_from_json(const JsonPlace& source);
Bucket bucket_from_json(const JsonPlace& source);
StateBlocks state_blocks_from_json(const JsonPlace& source);
TensorSums tensor_sums_from_json(const JsonPlace& source);

}  // namespace garonne::plan
