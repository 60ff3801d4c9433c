// What the manifest of a checkpoint says of the fields that its model was trained on
// (docs/formats.md), and back. For the sources of this room.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "data/fields/field_dataset.hpp"
#include "data/fields/field_match.hpp"
#include "data/statistics/field_statistics.hpp"

namespace garonne::train {

// Statistics of each point are not kept, since they are as large as a state.
nlohmann::json manifest_of_fields(const data::FieldDatasetInfo& info,
                                  const data::FieldStatistics& statistics);

// In all that follows `where` is the manifest, for errors; IoError: something is said wrongly.

// What is compared with other data; empty where a manifest of before says too little.
std::optional<data::FieldTraits> traits_in_manifest(const nlohmann::json& data,
                                                    const std::string& where);

// As far as a model has to know the data, of windows with `input_frames`; empty likewise. Neither
// files nor frames are there.
std::optional<data::FieldDatasetInfo> info_in_manifest(const nlohmann::json& data,
                                                       std::int64_t input_frames,
                                                       const std::string& where);

// Empty where they are of each point, of another `mode`, or not kept.
std::optional<data::FieldStatistics> statistics_in_manifest(const nlohmann::json& data,
                                                            const std::string& mode,
                                                            const std::string& where);

}  // namespace garonne::train
