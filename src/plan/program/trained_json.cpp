#include "plan/program/trained_json.hpp"

#include <nlohmann/json.hpp>

namespace garonne::plan {

using nlohmann::ordered_json;

namespace {

// So that no count of numbers overflows.
constexpr std::int64_t most_block_elements = std::int64_t{1} << 20;
constexpr std::string_view of_rows = "rows";
constexpr std::string_view of_columns = "columns";

}  // namespace

ordered_json to_json(const Range& range) {
  return {range.buffer, range.offset, range.elements};
}

ordered_json to_json(const std::vector<Range>& ranges) {
  ordered_json list = ordered_json::array();
  for (const Range& range : ranges) list.push_back(to_json(range));
  return list;
}

ordered_json to_json(const Piece& piece) {
  ordered_json result = {{"parameter", piece.parameter},        {"first", piece.first},
                         {"gradient", to_json(piece.gradient)}, {"trained", to_json(piece.trained)},
                         {"states", to_json(piece.states)},     {"counted", piece.counted}};
  if (piece.compute_copy.buffer >= 0) result["compute_copy"] = to_json(piece.compute_copy);
  if (!piece.sums.empty()) result["sums"] = to_json(piece.sums.front());
  if (piece.sums.size() > 1)
    result["later_sums"] = to_json(std::vector<Range>(piece.sums.begin() + 1, piece.sums.end()));
  return result;
}

ordered_json to_json(const Bucket& bucket) {
  ordered_json result = {{"buffer", bucket.buffer},
                         {"parameters", bucket.parameters},
                         {"offsets", bucket.offsets},
                         {"elements", bucket.elements}};
  const BucketShard& shard = bucket.shard;
  if (shard.elements == 0) return result;
  ordered_json& in_shards = result["shard"] = {
      {"elements", shard.elements}, {"parameter", shard.parameter}, {"states", shard.states}};
  if (shard.master >= 0) in_shards["master"] = shard.master;
  if (shard.gathered >= 0) in_shards["gathered"] = shard.gathered;
  if (shard.gradient >= 0) in_shards["gradient"] = shard.gradient;
  return result;
}

int index_of(const JsonPlace& place) {
  return static_cast<int>(place.integer(0, INT32_MAX));
}

int index_or_none(const JsonPlace& place, std::string_view key) {
  return place.has(key) ? static_cast<int>(place.key(key).integer(-1, INT32_MAX)) : -1;
}

std::int64_t bytes_of(const JsonPlace& place) {
  return place.integer(0, most_file_bytes);
}

Range range_of(const JsonPlace& place) {
  const std::vector<JsonPlace> numbers = place.elements();
  if (numbers.size() != 3) place.refuse("is not [buffer, first element, elements]");
  return {index_of(numbers[0]), bytes_of(numbers[1]), bytes_of(numbers[2])};
}

std::vector<Range> ranges_of(const JsonPlace& source, std::string_view key) {
  std::vector<Range> ranges;
  if (!source.has(key)) return ranges;
  for (const JsonPlace& range : source.key(key).elements()) ranges.push_back(range_of(range));
  return ranges;
}

Piece piece_from_json(const JsonPlace& source) {
  source.expect_keys({"parameter", "first", "gradient", "trained", "states", "counted"},
                     {"compute_copy", "sums", "later_sums"});
  Piece piece;
  piece.parameter = index_of(source.key("parameter"));
  piece.first = bytes_of(source.key("first"));
  piece.gradient = range_of(source.key("gradient"));
  piece.trained = range_of(source.key("trained"));
  piece.states = ranges_of(source, "states");
  piece.counted = source.key("counted").truth();
  if (source.has("compute_copy")) piece.compute_copy = range_of(source.key("compute_copy"));
  if (source.has("sums")) piece.sums = {range_of(source.key("sums"))};
  for (const Range& later : ranges_of(source, "later_sums")) piece.sums.push_back(later);
  return piece;
}

ordered_json to_json(const StateBlocks& blocks) {
  ordered_json numbers = ordered_json::array({blocks.elements, blocks.numbers});
  if (blocks.of_whole()) numbers.push_back(blocks.side == MatrixSide::Rows ? of_rows : of_columns);
  return numbers;
}

StateBlocks state_blocks_from_json(const JsonPlace& source) {
  const std::vector<JsonPlace> numbers = source.elements();
  if (numbers.size() == 3) {
    const std::string side = numbers[2].text();
    if (side != of_rows && side != of_columns) numbers[2].refuse("is neither rows nor columns");
    numbers[0].integer(1, 1);
    numbers[1].integer(0, 0);
    return StateBlocks::of_side(side == of_rows ? MatrixSide::Rows : MatrixSide::Columns);
  }
  if (numbers.size() != 2) source.refuse("is not [elements of a block, numbers of a block]");
  return {numbers[0].integer(1, most_block_elements), numbers[1].integer(1, most_block_elements)};
}

ordered_json to_json(const TensorSums& sums) {
  return ordered_json::array({sums.numbers, sums.sides});
}

TensorSums tensor_sums_from_json(const JsonPlace& source) {
  const std::vector<JsonPlace> parts = source.elements();
  if (parts.size() != 2) source.refuse("is not [numbers of a parameter, whether of its sides too]");
  return {parts[0].integer(0, most_block_elements), parts[1].truth()};
}

Bucket bucket_from_json(const JsonPlace& source) {
  source.expect_keys({"buffer", "parameters", "offsets", "elements"}, {"shard"});
  Bucket bucket;
  bucket.buffer = index_of(source.key("buffer"));
  bucket.parameters = source.key("parameters").indices();
  for (const JsonPlace& offset : source.key("offsets").elements())
    bucket.offsets.push_back(bytes_of(offset));
  if (bucket.offsets.size() != bucket.parameters.size() || bucket.parameters.empty())
    source.key("offsets").refuse("has another length than parameters, or none");
  bucket.elements = bytes_of(source.key("elements"));
  if (!source.has("shard")) return bucket;
  const JsonPlace shard = source.key("shard");
  shard.expect_keys({"elements", "parameter", "states"}, {"master", "gathered", "gradient"});
  bucket.shard.elements = bytes_of(shard.key("elements"));
  bucket.shard.parameter = index_of(shard.key("parameter"));
  bucket.shard.states = shard.key("states").indices();
  bucket.shard.master = index_or_none(shard, "master");
  bucket.shard.gathered = index_or_none(shard, "gathered");
  bucket.shard.gradient = index_or_none(shard, "gradient");
  return bucket;
}

}  // namespace garonne::plan
