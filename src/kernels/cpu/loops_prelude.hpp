// What the inner loops include, all of it before any instruction set is chosen.
#pragma once

#include "kernels/cpu/loops.hpp"
#include "kernels/element.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>
#include <type_traits>
