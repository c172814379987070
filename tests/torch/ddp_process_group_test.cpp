// SPDX-License-Identifier: BSD-3-Clause
// How ranks find each other.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lib/error.h"
#include "tests/torch/ddp_ranks.h"

namespace ddp_doctor::test {
namespace {

// A port of 127.0.0.1 that listens while this lives; its number is free afterwards.
class ListeningPort {
 public:
  ListeningPort() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(socket_, generic, size) != 0 || listen(socket_, 1) != 0 ||
        getsockname(socket_, generic, &size) != 0) {
      throw std::runtime_error("cannot listen on 127.0.0.1");
    }
    number_ = ntohs(address.sin_port);
  }
  ~ListeningPort() { close(socket_); }
  ListeningPort(const ListeningPort&) = delete;
  ListeningPort& operator=(const ListeningPort&) = delete;

  int number() const { return number_; }

 private:
  int socket_;
  int number_ = 0;
};

std::string our_error_of(const Rendezvous& rendezvous) {
  try {
    make_gloo_process_group(rendezvous);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ProcessGroup, AddsUpOverRanksThatMeetInAFile) {
  on_ranks(3, [](int rank, const ProcessGroupPtr& group) {
    const at::Tensor tensor = tensor_of({1, 2}) * (rank + 1);
    all_reduce_sum(group, tensor);
    EXPECT_TRUE(tensor.equal(tensor_of({6, 12})));
  });
}

TEST(ProcessGroup, AddsUpOverRanksThatMeetAtAPort) {
  const int port = ListeningPort().number();
  std::vector<float> sums(2);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&sums, rank, port] {
      const auto group = make_gloo_process_group(
          {.rank = rank, .world_size = 2, .port = port, .timeout = std::chrono::seconds(20)});
      const at::Tensor tensor = tensor_of({rank + 1.F});
      all_reduce_sum(group, tensor);
      sums[rank] = tensor.item<float>();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_THAT(sums, testing::ElementsAre(3, 3));
}

TEST(ProcessGroup, NamesThePortThatIsTaken) {
  const ListeningPort port;
  EXPECT_EQ(
      our_error_of({.world_size = 2, .port = port.number(), .timeout = std::chrono::seconds(5)}),
      "port " + std::to_string(port.number()) +
          " on 127.0.0.1 is in use: choose another port, or give a rendezvous file instead");
}

TEST(ProcessGroup, OneRankNeedsNoMeetingPoint) {
  const at::Tensor tensor = tensor_of({5});
  all_reduce_sum(make_gloo_process_group({}), tensor);
  EXPECT_TRUE(tensor.equal(tensor_of({5})));
}

TEST(ProcessGroup, SeveralRanksWithoutAMeetingPointAreRefused) {
  EXPECT_EQ(our_error_of({.rank = 2, .world_size = 2}),
            "rank 2 of 2 ranks: ranks are numbered from 0 to 1");
  EXPECT_THAT(our_error_of({.world_size = 2}), testing::HasSubstr("give a rendezvous file"));
}

TEST(ProcessGroup, GivesUpOnARankThatNeverComes) {
  const TemporaryFolder folder;
  EXPECT_ANY_THROW(make_gloo_process_group(
      {.world_size = 2, .file = folder.path() / "rendezvous", .timeout = std::chrono::seconds(1)}));
}

}  // namespace
}  // namespace ddp_doctor::test
