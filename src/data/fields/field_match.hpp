// Whether fields of one dataset can stand where those of another do: a forecast of temperatures in
// kelvin from ones in degrees Celsius, of a grid from south to north by a model that has seen one
// from north to south, or scores of daily forecasts against six-hourly frames, are wrong without a
// sign of it.
#pragma once

#include <string>
#include <vector>

#include "data/fields/field_dataset.hpp"
#include "data/fields/field_step.hpp"

namespace garonne::data {

// What is compared, as far as somebody says it.
struct FieldTraits {
  std::string of;                                // for people: where that is said
  std::vector<std::string> axes;                 // as FieldDatasetInfo has them
  std::vector<std::vector<double>> coordinates;  // of each axis; empty = nobody says
  std::vector<std::string> channels;
  std::vector<std::string> units;  // of these; empty texts where nobody says
  FieldStep step;                  // from a frame to the next
};

// Of the input channels of a dataset, then those of its targets that are none of them.
FieldTraits traits_of(const FieldDatasetInfo& info);

// The first difference of coordinates, of the units of channels that both have, or of the step in
// time (same_step), as a sentence without its subject, `mine`; empty where there is none.
// Coordinates are alike within a hundredth of their step, units by what they mean ("m/s" and "m
// s-1"); of axes that have other lengths nothing is said.
std::string difference_of(const FieldTraits& mine, const FieldTraits& other);

// Whether frames are taken one after the other, or are states to start from, whose step in time
// nobody looks at.
enum class FramesAre { Windows, States };

// Throws ConfigError (`key`, the path of `mine`) where points or chosen channels differ from those
// of `other`, or difference_of() says something.
void expect_same_fields(const std::string& key, const FieldDatasetInfo& mine,
                        const FieldDatasetInfo& other, FramesAre frames = FramesAre::Windows);

}  // namespace garonne::data
