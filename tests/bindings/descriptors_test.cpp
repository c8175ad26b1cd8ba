// File descriptors that one process asks another for (bindings/pytorch/bridge/descriptors.h).
#include "bindings/pytorch/bridge/descriptors.h"

#include <chrono>
#include <cstdint>
#include <fcntl.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headroom/base/error.h"

namespace headroom {
namespace {

using bridge::DescriptorServer;
using bridge::fetch_descriptors;
using bridge::SharedPiece;
using ::testing::HasSubstr;

// Piece i of id n is a file of n + i bytes.
DescriptorServer& server() {
  static DescriptorServer& instance =
      *new DescriptorServer([](std::uint64_t id, std::size_t first, std::size_t count) {
        if (id == 13) throw std::runtime_error("13 was freed");
        std::vector<SharedPiece> pieces;
        for (std::size_t i = first; i < first + count; ++i) {
          const int made = memfd_create("piece", MFD_CLOEXEC);
          EXPECT_EQ(ftruncate(made, static_cast<off_t>(id + i)), 0);
          pieces.push_back({.descriptor = made, .size_bytes = id + i});
        }
        return pieces;
      });
  return instance;
}

std::vector<std::uint64_t> sizes_of(const std::string& ticket) {
  std::vector<std::uint64_t> sizes;
  fetch_descriptors(ticket, [&](const SharedPiece& piece) {
    struct stat found {};
    EXPECT_EQ(fstat(piece.descriptor, &found), 0);
    EXPECT_EQ(static_cast<std::uint64_t>(found.st_size), piece.size_bytes);
    sizes.push_back(piece.size_bytes);
  });
  return sizes;
}

int open_descriptors() {
  int count = 0;
  for (int i = 0; i < 4096; ++i) count += fcntl(i, F_GETFD) >= 0 ? 1 : 0;
  return count;
}

TEST(Descriptors, ComeInOrderHoweverManyThereAre) {
  (void)server();
  const int before = open_descriptors();
  for (const std::size_t pieces : {1U, 63U, 64U, 65U, 1000U}) {
    const auto sizes = sizes_of(server().ticket(100, pieces));
    ASSERT_EQ(sizes.size(), pieces);
    for (std::size_t i = 0; i < pieces; ++i) ASSERT_EQ(sizes[i], 100 + i);
  }
  // The connections are closed by the server's thread, soon after.
  for (int i = 0; i < 1000 && open_descriptors() > before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(open_descriptors(), before) << "every descriptor is closed, on both sides";
}

TEST(Descriptors, ReachAnotherProcess) {
  const std::string ticket = server().ticket(7, 70);
  const pid_t child = fork();
  if (child == 0) {
    std::uint64_t sum = 0;
    fetch_descriptors(ticket, [&](const SharedPiece& piece) { sum += piece.size_bytes; });
    _exit(sum == 70 * 7 + 69 * 70 / 2 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(Descriptors, SeveralMayAskAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([] { EXPECT_EQ(sizes_of(server().ticket(3, 200)).size(), 200U); });
  }
  for (std::thread& thread : threads) thread.join();
}

std::string error_of(const std::string& ticket) {
  try {
    (void)sizes_of(ticket);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Descriptors, AnErrorSaysWhatTheOtherSideSays) {
  EXPECT_THAT(error_of(server().ticket(13, 2)), HasSubstr("13 was freed"));
  EXPECT_EQ(sizes_of(server().ticket(5, 2)).size(), 2U) << "the server goes on";
}

TEST(Descriptors, WhatIsNoTicketIsRefused) {
  EXPECT_FALSE(
      bridge::is_ticket("\x02"
                        "cabc"));
  EXPECT_THAT(error_of(""), HasSubstr("no memory that headroom shares"));
  EXPECT_THAT(error_of("headroom-share-1 headroom-0-none key 1 1"), HasSubstr("cannot be reached"));
  std::string wrong_key = server().ticket(5, 2);
  const std::size_t at = wrong_key.rfind(' ', wrong_key.rfind(' ', wrong_key.rfind(' ') - 1) - 1);
  wrong_key[at + 1] = wrong_key[at + 1] == '0' ? '1' : '0';
  EXPECT_THAT(error_of(wrong_key), HasSubstr("does not answer"));
}

}  // namespace
}  // namespace headroom
