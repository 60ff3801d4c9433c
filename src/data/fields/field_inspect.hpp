// What a dataset of fields holds, for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "data/fields/field_dataset.hpp"
#include "data/statistics/field_statistics.hpp"

namespace garonne::data {

// Makes the bytes of the files those on the disk: of a store of many files, of all of them, where
// FieldDataset looks at its metadata alone. What cannot be looked at is left as it is.
void count_stored_bytes(FieldDatasetInfo& info);

// Several lines, the last one ended.
std::string describe(const FieldDatasetInfo& info);
nlohmann::ordered_json field_dataset_json(const FieldDatasetInfo& info);

// A table of channels: mean, deviation, least, greatest, missing values; also their share of the
// `values` of a channel, where that is above 0.
std::string describe(const FieldSummaries& summaries, std::int64_t values = 0);
nlohmann::ordered_json field_summaries_json(const FieldSummaries& summaries);

}  // namespace garonne::data
