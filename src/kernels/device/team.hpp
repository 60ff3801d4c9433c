// Teams of threads, the only way in which device kernels are started; private to this room.
//
// A kernel is a struct with `void operator()(const Team& team, std::int64_t index) const`, called
// once for each team. A team has `groups` groups of 32 threads (a block of warps on CUDA). On the
// host's spaces one or two threads of the processor do the work of all threads of a team, in the
// same arithmetic: sums have the same bits in every space.
#pragma once

#include "kernels/device/place.hpp"

#include <Kokkos_Core.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

// Reads in such a loop are begun together.
#ifdef __CUDA_ARCH__
#define GARONNE_UNROLLED _Pragma("unroll")
#else
#define GARONNE_UNROLLED
#endif

namespace garonne::kernels::device {

inline constexpr int lanes_of_group = 32;

// A value of each thread, which it has in its registers from one sum of the team to the next.
template <typename V, int threads>
class PerThread {
 public:
#ifdef __CUDA_ARCH__
  __device__ V& operator[](int) {
    return value_;
  }

 private:
  V value_;
#else
  V& operator[](int thread) {
    return values_[thread];
  }

 private:
  V values_[static_cast<std::size_t>(threads)];
#endif
};

// One group of a team that takes work of its own and waits for no other; it has what kernels ask of
// a team but for memory that is shared.
class Group {
 public:
  static constexpr int groups = 1;
  static constexpr int threads = lanes_of_group;

  KOKKOS_FUNCTION explicit Group(int index) : index_(index) {}
  KOKKOS_FUNCTION int index() const { return index_; }

  // f(thread) for each of the group's.
  template <typename F>
  KOKKOS_FUNCTION void each_thread(const F& f) const {
#ifdef __CUDA_ARCH__
    f(static_cast<int>(threadIdx.x));
#else
    for (int lane = 0; lane < threads; ++lane) f(lane);
#endif
  }

  // As Team::sum; the place is for teams.
  template <typename G, typename F>
  KOKKOS_FUNCTION G sum(G*, const F& of_thread) const {
#ifdef __CUDA_ARCH__
    G value = of_thread(static_cast<int>(threadIdx.x));
    for (int half = lanes_of_group / 2; half > 0; half /= 2)
      value = value + __shfl_xor_sync(0xFFFFFFFFU, value, half);
    return value;
#else
    G lanes[lanes_of_group];
    for (int lane = 0; lane < threads; ++lane) lanes[lane] = of_thread(lane);
    for (int half = lanes_of_group / 2; half > 0; half /= 2) {
      for (int lane = 0; lane < half; ++lane) lanes[lane] = lanes[lane] + lanes[lane + half];
    }
    return lanes[0];
#endif
  }

 private:
  int index_;
};

template <typename Member, int group_count>
class Team {
 public:
  static constexpr int groups = group_count;
  static constexpr int threads = groups * lanes_of_group;

  KOKKOS_FUNCTION explicit Team(const Member& member) : member_(member) {}

  // f(i) for i in [0, count): thread t has t, t + threads, …
  template <typename Index, typename F>
  KOKKOS_FUNCTION void each(Index count, const F& f) const {
#ifdef __CUDA_ARCH__
    for (Index i = thread(); i < count; i += threads) f(i);
#else
    for (Index i = member_.team_rank(); i < count; i += member_.team_size()) f(i);
#endif
  }

  // f(thread) for each thread; who has it is who has it in sums, so that f may keep something in a
  // PerThread.
  template <typename F>
  KOKKOS_FUNCTION void each_thread(const F& f) const {
#ifdef __CUDA_ARCH__
    f(thread());
#else
    for (int group = member_.team_rank(); group < groups; group += member_.team_size()) {
      for (int lane = 0; lane < lanes_of_group; ++lane) f(group * lanes_of_group + lane);
    }
#endif
  }

  // f(group) for each group, all at the same time.
  template <typename F>
  KOKKOS_FUNCTION void each_group(const F& f) const {
#ifdef __CUDA_ARCH__
    f(Group(static_cast<int>(threadIdx.y)));
#else
    for (int group = member_.team_rank(); group < groups; group += member_.team_size())
      f(Group(group));
#endif
  }

  // Everything that the team's threads wrote is seen by all of them.
  KOKKOS_FUNCTION void wait() const {
    member_.team_barrier();
  }

  // Memory that the team shares, until it ends; to be named in the kernel's scratch_bytes.
  template <typename T>
  KOKKOS_FUNCTION T* shared(int count) const {
    return static_cast<T*>(
        member_.team_scratch(0).get_shmem_aligned(static_cast<std::size_t>(count) * sizeof(T), 16));
  }

  // Bit i % 32 of masks[i / 32] = holds(i), for 32 · count of them. `masks` is shared.
  template <typename Holds>
  KOKKOS_FUNCTION void ballots(std::uint32_t* masks, int count, const Holds& holds) const {
#ifdef __CUDA_ARCH__
#pragma unroll 4
    for (int mask = static_cast<int>(threadIdx.y); mask < count; mask += groups) {
      const int lane = static_cast<int>(threadIdx.x);
      const std::uint32_t bits = __ballot_sync(0xFFFFFFFFU, holds(mask * lanes_of_group + lane));
      if (lane == 0) masks[mask] = bits;
    }
#else
    for (int mask = member_.team_rank(); mask < count; mask += member_.team_size()) {
      std::uint32_t bits = 0;
      for (int lane = 0; lane < lanes_of_group; ++lane) {
        if (holds(mask * lanes_of_group + lane)) bits |= 1U << lane;
      }
      masks[mask] = bits;
    }
#endif
  }

  // The sum of of_thread(t) over the threads: in a group pairs 16 apart, then 8, 4, 2 and 1; then
  // the groups in order. Everybody gets it. `sums` is shared, [groups].
  template <typename G, typename F>
  KOKKOS_FUNCTION G sum(G* sums, const F& of_thread) const {
    return combine(sums, of_thread, [](G a, G b) { return a + b; });
  }

  // The sum of term(i) for i in [0, count): thread t adds those of t, t + threads, …, and the
  // threads are added as above.
  template <typename G, typename F>
  KOKKOS_FUNCTION G sum_of(G* sums, std::int64_t count, const F& term) const {
    return sum<G>(sums, [&](int thread) {
      G total = 0;
      for (std::int64_t i = thread; i < count; i += threads) total += term(i);
      return total;
    });
  }

  // The largest; a number that is none is passed over.
  template <typename G, typename F>
  KOKKOS_FUNCTION G most(G* values, const F& of_thread) const {
    return combine(values, of_thread, [](G a, G b) { return b > a ? b : a; });
  }

 private:
#ifdef __CUDA_ARCH__
  __device__ static int thread() {
    return static_cast<int>(threadIdx.y * lanes_of_group + threadIdx.x);
  }
#endif

  template <typename G, typename F, typename Combine>
  KOKKOS_FUNCTION G combine(G* values, const F& of_thread, const Combine& two) const {
#ifdef __CUDA_ARCH__
    G value = of_thread(thread());
    for (int half = lanes_of_group / 2; half > 0; half /= 2)
      value = two(value, __shfl_xor_sync(0xFFFFFFFFU, value, half));
    if constexpr (groups == 1) return value;
    if (threadIdx.x == 0) values[threadIdx.y] = value;
#else
    for (int group = member_.team_rank(); group < groups; group += member_.team_size()) {
      G lanes[lanes_of_group];
      for (int lane = 0; lane < lanes_of_group; ++lane)
        lanes[lane] = of_thread(group * lanes_of_group + lane);
      for (int half = lanes_of_group / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) lanes[lane] = two(lanes[lane], lanes[lane + half]);
      }
      values[group] = lanes[0];
    }
#endif
    wait();
    G all = values[0];
    for (int group = 1; group < groups; ++group) all = two(all, values[group]);
    wait();  // before `values` is used again
    return all;
  }

  const Member& member_;
};

template <int groups, typename Kernel>
struct TeamKernel {
  Kernel kernel;
  std::int64_t first;

  template <typename Member>
  KOKKOS_FUNCTION void operator()(const Member& member) const {
    kernel(Team<Member, groups>(member), first + member.league_rank());
  }
};

// On the host two threads where they share something, else one: they meet at every team.
template <typename Space>
int team_size_of(const Space& space, int groups, int scratch_bytes) {
#ifdef KOKKOS_ENABLE_CUDA
  if constexpr (std::is_same_v<Space, Kokkos::Cuda>) return groups;
#endif
  return scratch_bytes == 0 ? 1 : std::min({groups, 2, static_cast<int>(space.concurrency())});
}

// Puts kernel(team, i) for i in [0, teams) into the space and returns: nothing is waited for,
// nothing allocated. Every team has `scratch_bytes` that its threads share. Threads get no more
// registers than let `resident` teams be on a multiprocessor.
template <int groups, unsigned resident = 1, typename Space, typename Kernel>
void for_teams(const Space& space, std::int64_t teams, int scratch_bytes, const Kernel& kernel) {
  // A grid has at most 2^31 - 1 blocks.
  constexpr std::int64_t teams_at_once = std::int64_t{1} << 30;
  // On CUDA a kernel that is no light one goes through a buffer that launches share where it is
  // large: Kokkos holds the host for it, and by the time that a graph is carried out it is others'.
  using Policy = Kokkos::TeamPolicy<
      Space, Kokkos::LaunchBounds<static_cast<unsigned>(groups * lanes_of_group), resident>,
      Kokkos::IndexType<int>, Kokkos::Experimental::WorkItemProperty::HintLightWeight_t>;
#ifdef KOKKOS_ENABLE_CUDA
  constexpr int lanes = std::is_same_v<Space, Kokkos::Cuda> ? lanes_of_group : 1;
#else
  constexpr int lanes = 1;
#endif
  for (std::int64_t first = 0; first < teams; first += teams_at_once) {
    const int count = static_cast<int>(std::min(teams - first, teams_at_once));
    Policy policy(space, count, team_size_of(space, groups, scratch_bytes), lanes);
    if (scratch_bytes > 0)
      policy.set_scratch_size(0, Kokkos::PerTeam(static_cast<std::size_t>(scratch_bytes)));
#ifdef KOKKOS_ENABLE_CUDA
    static_assert(!std::is_same_v<Space, Kokkos::Cuda> ||
                      sizeof(Kokkos::Impl::ParallelFor<TeamKernel<groups, Kernel>, Policy, Space>) <
                          Kokkos::Impl::CudaTraits::KernelArgumentLimit,
                  "a kernel has more arguments than a launch takes along");
#endif
    Kokkos::parallel_for("garonne", policy, TeamKernel<groups, Kernel>{kernel, first});
  }
}

// Bytes of `count` values for Team::shared, alignment included.
template <typename T>
constexpr int shared_bytes(int count) {
  return count * static_cast<int>(sizeof(T)) + 16;
}

}  // namespace garonne::kernels::device
