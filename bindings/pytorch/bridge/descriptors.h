// File descriptors from process to process, asked for by a key.
//
//   DescriptorServer server(answer);                      // in the one that has them
//   const std::string ticket = server.ticket(id);         // sent to the other by any means
//   auto got = fetch_descriptors(ticket, take);           // there
//
// A thread of the server's answers on a socket that has no name in the file system. It answers
// processes of the same user that know its key, and nobody else.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace headroom::bridge {

// Descriptors are sent this many at a time, and closed as soon as they are sent: no process comes
// near the number of open files that it may have.
inline constexpr std::size_t kDescriptorsAtATime = 64;

// A descriptor and the bytes it stands for.
struct SharedPiece {
  int descriptor = -1;
  std::uint64_t size_bytes = 0;
};

class DescriptorServer {
 public:
  // Fills in pieces [first, first + count) of what `id` stands for. Throws where it cannot.
  using Answer = std::function<std::vector<SharedPiece>(
      std::uint64_t id, std::size_t first, std::size_t count)>;

  // Throws Error where the system gives no socket. The thread runs until the process ends.
  explicit DescriptorServer(Answer answer);
  ~DescriptorServer() = delete;
  DescriptorServer(const DescriptorServer&) = delete;
  DescriptorServer& operator=(const DescriptorServer&) = delete;

  // What to tell the other process: one line of text.
  [[nodiscard]] std::string ticket(std::uint64_t id, std::size_t pieces) const;

 private:
  void serve() noexcept;
  void answer_one(int connection);

  Answer answer_;
  std::string name_;
  std::string key_;
  int socket_ = -1;
};

// Whether the text is a ticket at all.
[[nodiscard]] bool is_ticket(const std::string& text) noexcept;

// Asks for everything a ticket stands for. `take` is called for one piece after the other and
// leaves the descriptor alone. Throws Error, with what the other side says where it says something.
void fetch_descriptors(const std::string& ticket,
                       const std::function<void(const SharedPiece&)>& take);

}  // namespace headroom::bridge
