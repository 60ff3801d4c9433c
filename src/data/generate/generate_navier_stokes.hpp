// The Navier-Stokes data of Li et al., "Fourier neural operator for parametric partial differential
// equations", ICLR 2021: vorticity on the torus from random initial states under a constant force,
// in PDEBench's layout.
#pragma once

#include <cstdint>
#include <string>

#include "dist/session.hpp"

namespace garonne::data {

struct NavierStokesGeneration {
  std::string output;       // file of the training samples
  std::string test_output;  // file of the held-out ones; empty = none
  std::int64_t samples = 1000;
  std::int64_t test_samples = 200;
  std::int64_t resolution = 256;  // points along a side of the problem that is solved
  std::int64_t stride = 4;        // one point in so many is written, along each side
  double viscosity = 1e-3;
  double step = 1e-4;      // s
  std::int64_t time = 50;  // s; a frame is written every second
  double alpha = 2.5;      // of the initial state, as is tau: gaussian_field.hpp
  double tau = 7;
  std::uint64_t seed = 0;
  bool show_progress = true;
};

// Over all frames written to both files.
struct NavierStokesSummary {
  double mean_square = 0;   // of the vorticity
  double largest = 0;       // of its absolute value
  double largest_mean = 0;  // of the absolute mean of a frame, which the scheme keeps at 0
};

// As generate_darcy. RefusedError with the sample where the scheme becomes unstable.
NavierStokesSummary generate_navier_stokes(dist::Session& session,
                                           const NavierStokesGeneration& generation);

}  // namespace garonne::data
