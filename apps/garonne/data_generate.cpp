// `garonne data darcy | navier-stokes | shallow-water | synthetic-era5`: a generator is one
// function here and one line in the table at the end.
#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "base/bytes.hpp"
#include "command.hpp"
#include "counts.hpp"
#include "data/generate/generate_darcy.hpp"
#include "data/generate/generate_navier_stokes.hpp"
#include "data/generate/generate_shallow_water.hpp"
#include "data/generate/generate_synthetic_era5.hpp"

namespace garonne::apps {
namespace {

// What all commands of this file share.
template <typename Generation>
CLI::App* add_generator(CLI::App& data, const char* name, const char* help,
                        const std::shared_ptr<Generation>& generation, const char* output) {
  CLI::App* command = data.add_subcommand(name, help);
  command->footer("Ranks of mpirun share the work; the files are the same for any number of them.");
  command->add_option("--output", generation->output, output)->type_name("PATH")->required();
  command->add_option("--seed", generation->seed, "of the random numbers")->capture_default_str();
  command->add_flag(
      "--no-progress", [generation](std::int64_t) { generation->show_progress = false; },
      "show no bar");
  return command;
}

template <typename Value>
CLI::Option* add(CLI::App* command, const char* name, Value& value, const char* help) {
  CLI::Option* option = command->add_option(name, value, help)->capture_default_str();
  // What is too small, the generators say themselves: help shows no range that means nothing.
  if constexpr (std::is_integral_v<Value>) {
    option->check(count(-most_counted).description(std::string()));
  } else if constexpr (std::is_same_v<Value, std::string>) {
    option->type_name("NAME");
  }
  return option;
}

// A sample is made in memory, as a whole and in double precision.
void check_bytes(const char* option, std::int64_t value, double bytes) {
  constexpr double most = 0x1p33;
  if (bytes <= most) return;
  throw ConfigError(option, fmt::format("{}", value),
                    fmt::format("takes about {:.0f} GiB of memory for a sample, and at most {:.0f} "
                                "are given to one",
                                bytes / 0x1p30, most / 0x1p30));
}

// Of a solver on a square with `resolution` points a side: its fields, and the frames of a sample.
void check_square(std::int64_t resolution, std::int64_t stride, double frames) {
  const double side = static_cast<double>(resolution);
  const double written = side / static_cast<double>(std::max<std::int64_t>(stride, 1));
  check_bytes("--resolution", resolution, 64 * 8 * side * side);
  check_bytes("--resolution", resolution, 4 * written * written * std::max(frames, 1.0));
}

// Of a solver on the sphere: tables of Legendre functions and of their derivatives, fields, and the
// frames of a sample. `degrees` of 0 are a third of the latitudes.
void check_sphere(std::int64_t latitudes, std::int64_t longitudes, std::int64_t degrees,
                  double values_of_a_sample) {
  const double points = static_cast<double>(latitudes) * static_cast<double>(longitudes);
  const double bandwidth =
      degrees > 0 ? static_cast<double>(degrees) : static_cast<double>(latitudes) / 3;
  check_bytes("--longitudes", longitudes, 32 * 8 * points);
  check_bytes("--latitudes", latitudes,
              2 * 8 * static_cast<double>(latitudes) * bandwidth * bandwidth / 2);
  check_bytes("--longitudes", longitudes, 4 * points * values_of_a_sample);
}

// An option that would do nothing is refused.
void expect_not_given(std::initializer_list<const CLI::Option*> options, const std::string& with) {
  for (const CLI::Option* option : options) {
    if (option->count() > 0) {
      throw ConfigError(option->get_name(), option->as<std::string>(),
                        "has no meaning with " + with);
    }
  }
}

template <typename Generation>
void add_samples(CLI::App* command, const std::shared_ptr<Generation>& generation) {
  CLI::Option* test =
      command->add_option("--test", generation->test_output, "HDF5 file of the held-out samples")
          ->type_name("FILE");
  add(command, "--samples", generation->samples, "for training");
  add(command, "--test-samples", generation->test_samples, "held out")->needs(test);
  add(command, "--resolution", generation->resolution, "points along a side of what is solved");
  add(command, "--stride", generation->stride, "one point in so many is written, along each side");
}

void add_darcy(CLI::App& data, Chosen& chosen) {
  const auto generation = std::make_shared<data::DarcyGeneration>();
  CLI::App* command = add_generator(data, "darcy", "flow through random media: −∇·(a∇u) = f",
                                    generation, "HDF5 file to write, in PDEBench's layout");
  add_samples(command, generation);
  add(command, "--coefficient", generation->coefficient, "threshold | lognormal");
  CLI::Option* large =
      add(command, "--large", generation->large, "a where the random field is at least 0");
  CLI::Option* small = add(command, "--small", generation->small, "a where it is below");
  add(command, "--force", generation->force, "f");
  add(command, "--alpha", generation->alpha, "smoothness of the random field");
  add(command, "--tau", generation->tau, "its inverse length");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      if (generation->coefficient == "lognormal") {
        expect_not_given({large, small}, "--coefficient lognormal");
      }
      check_square(generation->resolution, generation->stride, 1);
      const auto summary = data::generate_darcy(session, *generation);
      if (session.rank() == 0) {
        fmt::print("u: mean {:.4e}, deviation {:.4e}, maximum {:.4e}; share of large a {:.4f}\n",
                   summary.mean, summary.deviation, summary.largest, summary.share);
      }
      return ExitCode::Done;
    };
  });
}

void add_navier_stokes(CLI::App& data, Chosen& chosen) {
  const auto generation = std::make_shared<data::NavierStokesGeneration>();
  CLI::App* command =
      add_generator(data, "navier-stokes", "forced flow on the torus, by its vorticity", generation,
                    "HDF5 file to write, in PDEBench's layout");
  add_samples(command, generation);
  add(command, "--viscosity", generation->viscosity, "ν");
  add(command, "--time", generation->time,
      "seconds; one frame is written each (published sets: 50, 30, 20 for ν of 1e-3, 1e-4, 1e-5)");
  add(command, "--step", generation->step, "seconds");
  add(command, "--alpha", generation->alpha, "smoothness of the initial state");
  add(command, "--tau", generation->tau, "its inverse length");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      check_square(generation->resolution, generation->stride,
                   static_cast<double>(generation->time));
      const auto summary = data::generate_navier_stokes(session, *generation);
      if (session.rank() == 0) {
        fmt::print(
            "vorticity: mean square {:.6e}, largest {:.6e}, largest mean of a frame {:.1e}\n",
            summary.mean_square, summary.largest, summary.largest_mean);
      }
      return ExitCode::Done;
    };
  });
}

void print(const data::ShallowWaterSummary& summary, const data::ShallowWaterGeneration& of) {
  if (of.initial == "galewsky") {
    fmt::print("{:>10} {:>14} {:>14} {:>16} {:>14} {:>11} {:>8} {:>8}\n", "hours", "mean φ",
               "kinetic", "total energy", "enstrophy", "max |ζ|", "max u", "max |v|");
    for (std::size_t frame = 0; frame < summary.first.size(); ++frame) {
      const auto& found = summary.first[frame];
      fmt::print("{:10.2f} {:14.6f} {:14.8e} {:16.10e} {:14.8e} {:11.5e} {:8.4f} {:8.4f}\n",
                 static_cast<double>(frame) * of.frame_hours, found.mean_geopotential,
                 found.kinetic_energy, found.total_energy, found.potential_enstrophy,
                 found.largest_vorticity, found.largest_eastward, found.largest_northward);
    }
  }
  constexpr const char* names[] = {"geopotential", "vorticity", "divergence"};
  for (std::size_t channel = 0; channel < summary.means.size(); ++channel) {
    fmt::print("{:12}  mean {:12.5e}  deviation {:12.5e}\n", names[channel], summary.means[channel],
               summary.deviations[channel]);
  }
  fmt::print("mean geopotential changed by {:.1e} of it at most\n", summary.largest_drift);
}

void add_shallow_water(CLI::App& data, Chosen& chosen) {
  const auto generation = std::make_shared<data::ShallowWaterGeneration>();
  const auto grid = std::make_shared<std::string>(sphere_grid_name(generation->grid));
  CLI::App* command = add_generator(data, "shallow-water", "shallow water on the rotating sphere",
                                    generation, "folder to write train, test and stats into");
  add(command, "--grid", *grid, "legendre-gauss | equiangular | equiangular-midpoints");
  add(command, "--latitudes", generation->latitudes, "of the grid");
  add(command, "--longitudes", generation->longitudes, "of the grid");
  add(command, "--degrees", generation->solver.degrees,
      "of spherical harmonics; 0 = a third of the latitudes");
  add(command, "--step", generation->solver.step, "seconds");
  command->add_flag(
      "--no-diffusion", [generation](std::int64_t) { generation->solver.diffusion = false; },
      "do not damp the smallest waves");
  command->add_flag(
      "--exact-constants",
      [generation](std::int64_t) { generation->solver.published_rounding = false; },
      "leave out the rounding of two constants that the published solver has");
  add(command, "--initial", generation->initial, "random | galewsky");
  CLI::Option* mach =
      add(command, "--mach", generation->mach, "speed of the random winds over that of waves");
  CLI::Option* trajectories =
      add(command, "--trajectories", generation->trajectories, "for training");
  CLI::Option* test_trajectories =
      add(command, "--test-trajectories", generation->test_trajectories, "held out");
  add(command, "--trajectory-length", generation->trajectory_length,
      "frames, the initial state among them");
  add(command, "--frame-hours", generation->frame_hours, "from frame to frame");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      generation->grid = sphere_grid_kind("grid", *grid);
      if (generation->initial == "galewsky") {
        expect_not_given({mach, command->get_option("--seed")}, "--initial galewsky");
        // One start has one trajectory; asking for more is refused.
        if (trajectories->count() == 0) generation->trajectories = 1;
        if (test_trajectories->count() == 0) generation->test_trajectories = 0;
      }
      check_sphere(generation->latitudes, generation->longitudes, generation->solver.degrees, 3);
      check_bytes("--trajectory-length", generation->trajectory_length,
                  12.0 * static_cast<double>(generation->latitudes) *
                      static_cast<double>(generation->longitudes) *
                      static_cast<double>(generation->trajectory_length));
      const auto summary = data::generate_shallow_water(session, *generation);
      if (session.rank() == 0) print(summary, *generation);
      return ExitCode::Done;
    };
  });
}

void add_synthetic_era5(CLI::App& data, Chosen& chosen) {
  const auto generation = std::make_shared<data::SyntheticEra5Generation>();
  const auto grid = std::make_shared<std::string>(sphere_grid_name(generation->grid));
  CLI::App* command =
      add_generator(data, "synthetic-era5", "random weather in yearly files like those of ERA5",
                    generation, "folder to write train, test and stats into");
  add(command, "--grid", *grid, "legendre-gauss | equiangular | equiangular-midpoints");
  add(command, "--latitudes", generation->latitudes, "of the grid; 721 as ERA5");
  add(command, "--longitudes", generation->longitudes, "of the grid; 1440 as ERA5");
  add(command, "--degrees", generation->degrees,
      "of spherical harmonics; 0 = a third of the latitudes, 240 at most");
  command
      ->add_option("--channels", generation->channels,
                   "names as t2m,z500,u850; all 73 unless given")
      ->type_name("NAME")
      ->delimiter(',');
  add(command, "--first-year", generation->first_year, "of training");
  add(command, "--years", generation->years, "of training");
  add(command, "--test-years", generation->test_years, "after them, held out");
  add(command, "--frame-hours", generation->frame_hours, "from frame to frame");
  add(command, "--frames-a-year", generation->frames_a_year, "0 = the whole year");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      generation->grid = sphere_grid_kind("grid", *grid);
      check_sphere(generation->latitudes, generation->longitudes,
                   generation->degrees > 0 ? generation->degrees : 240, 73);
      const auto summary = data::generate_synthetic_era5(session, *generation);
      if (session.rank() == 0) {
        for (std::size_t channel = 0; channel < summary.channels.size(); ++channel) {
          fmt::print("{:6}  mean {:12.5e}  deviation {:12.5e}\n", summary.channels[channel],
                     summary.means[channel], summary.deviations[channel]);
        }
        fmt::print("{} frames, {}\n", summary.frames, format_bytes(summary.bytes));
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace

void add_data_generators(CLI::App& data, Chosen& chosen) {
  for (const auto adder : {add_darcy, add_navier_stokes, add_shallow_water, add_synthetic_era5}) {
    adder(data, chosen);
  }
}

}  // namespace garonne::apps
