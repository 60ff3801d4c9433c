// The Darcy flow data of Li et al., "Fourier neural operator for parametric partial differential
// equations", ICLR 2021: random media and the pressure in them, in PDEBench's layout.
#pragma once

#include <cstdint>
#include <string>

#include "dist/session.hpp"

namespace garonne::data {

struct DarcyGeneration {
  std::string output;       // file of the training samples
  std::string test_output;  // file of the held-out ones; empty = none
  std::int64_t samples = 1000;
  std::int64_t test_samples = 100;
  std::int64_t resolution = 141;  // nodes along a side of the problem that is solved
  std::int64_t stride = 4;        // one node in so many is written, along each side
  // "threshold": a = large where the field is >= 0, else small. "lognormal": a = exp(field).
  std::string coefficient = "threshold";
  double large = 12;
  double small = 3;
  double force = 1;
  double alpha = 2;  // of the Gaussian field, as is tau: gaussian_field.hpp
  double tau = 3;
  std::uint64_t seed = 0;
  bool show_progress = true;
};

// Over all nodes and samples of both files.
struct DarcySummary {
  double mean = 0;       // of u
  double deviation = 0;  // of u
  double largest = 0;    // of u
  double share = 0;      // of nodes with the large coefficient, or of a >= 1
};

// Sample i of a seed is the same for every number of samples and ranks; the held-out ones follow
// the training ones. Files are whole or what they were. Collective; the summary is rank 0's.
// ConfigError for values that cannot be, IoError for an output that cannot.
DarcySummary generate_darcy(dist::Session& session, const DarcyGeneration& generation);

}  // namespace garonne::data
