// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <mpi.h>

TEST(MpiMain, GivesThreadMultiple) {
  int level = MPI_THREAD_SINGLE;
  ASSERT_EQ(MPI_Query_thread(&level), MPI_SUCCESS);
  EXPECT_EQ(level, MPI_THREAD_MULTIPLE);
}

TEST(MpiMain, RanksReachEachOther) {
  int rank = -1;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int sum = 0;
  ASSERT_EQ(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD), MPI_SUCCESS);
  EXPECT_EQ(sum, size * (size - 1) / 2);
}
