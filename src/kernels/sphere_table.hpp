// How tables and workspaces of spherical harmonic transforms are laid out; private to this room.
#pragma once

#include <cstdint>

namespace garonne::kernels {

// The real and imaginary parts of a chunk of channels.
inline constexpr std::int64_t sphere_panel_bytes = 256;

// A table of Legendre functions begins with one of these an order; then roots of unity, cosine and
// sine of 2π j / longitudes; then an order's functions, of even degrees - order first.
struct SphereTableOrder {
  std::int64_t first;  // element of the table where its rows begin
  std::int64_t start;  // northern rows before this one are so near the pole that they count nothing
};

}  // namespace garonne::kernels
