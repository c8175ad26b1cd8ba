#include "bindings/pytorch/bridge/descriptors.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>

#include "headroom/base/error.h"

namespace headroom::bridge {
namespace {

constexpr const char* kMagic = "headroom-share-1";
constexpr std::size_t kTextBytes = 256;
constexpr int kPatienceSeconds = 30;

// One request and its answer; both sides are of one machine.
struct DescriptorRequest {
  std::array<char, 64> key{};
  std::uint64_t id = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};
struct Reply {
  std::uint64_t count = 0;
  std::array<std::uint64_t, kDescriptorsAtATime> sizes{};
  std::array<char, kTextBytes> error{};  // empty: it worked
};

class Descriptor {
 public:
  explicit Descriptor(int number) noexcept : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) (void)close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return number_; }

 private:
  int number_;
};

[[noreturn]] void throw_system(const std::string& what) {
  throw Error(what + ": " + std::generic_category().message(errno));
}

int make_socket() {
  const int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (made < 0) throw_system("a socket for other processes");
  const timeval patience{.tv_sec = kPatienceSeconds, .tv_usec = 0};
  (void)setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  (void)setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  return made;
}

// A name that begins with a zero is not in the file system.
socklen_t address_of(const std::string& name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + 1, name.data(), length);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

std::string random_word() {
  std::random_device device;
  std::array<char, 33> text{};
  std::snprintf(
      text.data(), text.size(), "%08x%08x%08x%08x", device(), device(), device(), device());
  return text.data();
}

using Control = std::array<char, CMSG_SPACE(sizeof(int) * kDescriptorsAtATime)>;

void send_reply(int connection, const Reply& reply, const std::vector<SharedPiece>& pieces) {
  Reply sent = reply;
  iovec data{.iov_base = &sent, .iov_len = sizeof(sent)};
  alignas(cmsghdr) Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!pieces.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int) * pieces.size());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * pieces.size());
    std::vector<int> numbers;
    for (const SharedPiece& piece : pieces) numbers.push_back(piece.descriptor);
    std::memcpy(CMSG_DATA(header), numbers.data(), sizeof(int) * numbers.size());
  }
  (void)sendmsg(connection, &message, MSG_NOSIGNAL);
}

Reply receive_reply(int connection, std::vector<int>& numbers) {
  Reply reply;
  iovec data{.iov_base = &reply, .iov_len = sizeof(reply)};
  alignas(cmsghdr) Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    const std::size_t before = numbers.size();
    numbers.resize(before + count);
    std::memcpy(numbers.data() + before, CMSG_DATA(header), count * sizeof(int));
  }
  if (got != static_cast<ssize_t>(sizeof(reply))) {
    throw Error("the process that shares the memory does not answer; has it ended?");
  }
  return reply;
}

struct Ticket {
  std::string name;
  std::string key;
  std::uint64_t id = 0;
  std::uint64_t pieces = 0;
};

// The part up to the next space, which is cut off.
std::string_view next_word(std::string_view& text) noexcept {
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(std::min(word.size() + 1, text.size()));
  return word;
}

// Without a stream: programs load libraries that bring parts of the standard library's own.
bool read_number(std::string_view word, std::uint64_t& number) noexcept {
  const auto read = std::from_chars(word.data(), word.data() + word.size(), number);
  return read.ec == std::errc() && read.ptr == word.data() + word.size();
}

Ticket parse_ticket(const std::string& text) {
  std::string_view rest = text;
  const bool is_ours = next_word(rest) == kMagic;
  Ticket ticket;
  ticket.name = next_word(rest);
  ticket.key = next_word(rest);
  const bool has_id = read_number(next_word(rest), ticket.id);
  const bool has_pieces = read_number(next_word(rest), ticket.pieces) && ticket.pieces > 0;
  if (!is_ours || !has_id || !has_pieces || !rest.empty() ||
      ticket.key.size() >= sizeof(DescriptorRequest::key)) {
    throw Error(
        "this is no memory that headroom shares; is it enabled in the process that sent it? "
        "It says '" +
        text + "'");
  }
  return ticket;
}

}  // namespace

DescriptorServer::DescriptorServer(Answer answer)
    : answer_(std::move(answer)),
      name_("headroom-" + std::to_string(getpid()) + "-" + random_word()),
      key_(random_word()),
      socket_(make_socket()) {
  const timeval for_ever{};
  (void)setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &for_ever, sizeof(for_ever));
  sockaddr_un address{};
  const socklen_t length = address_of(name_, address);
  if (bind(socket_, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      listen(socket_, 64) != 0) {
    const int error = errno;
    (void)close(socket_);
    errno = error;
    throw_system("a socket for other processes");
  }
  std::thread([this] { serve(); }).detach();
}

std::string DescriptorServer::ticket(std::uint64_t id, std::size_t pieces) const {
  return std::string(kMagic) + " " + name_ + " " + key_ + " " + std::to_string(id) + " " +
         std::to_string(pieces);
}

void DescriptorServer::serve() noexcept {
  for (;;) {
    const int accepted = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (accepted < 0) {
      if (errno == EINTR || errno == ECONNABORTED || errno == EMFILE || errno == ENFILE) {
        std::this_thread::yield();
        continue;
      }
      return;
    }
    const Descriptor connection(accepted);
    try {
      const timeval patience{.tv_sec = kPatienceSeconds, .tv_usec = 0};
      (void)setsockopt(accepted, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
      answer_one(accepted);
    } catch (...) {  // Whoever asked sees the connection end.
      continue;
    }
  }
}

void DescriptorServer::answer_one(int connection) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return;
  if (peer.uid != getuid()) return;
  for (;;) {
    DescriptorRequest request;
    const ssize_t got = recv(connection, &request, sizeof(request), 0);
    if (got != static_cast<ssize_t>(sizeof(request))) return;
    request.key.back() = '\0';
    if (key_ != request.key.data() || request.count > kDescriptorsAtATime) return;
    Reply reply;
    std::vector<SharedPiece> pieces;
    try {
      pieces = answer_(request.id, request.first, request.count);
      reply.count = pieces.size();
      for (std::size_t i = 0; i < pieces.size(); ++i) reply.sizes[i] = pieces[i].size_bytes;
    } catch (const std::exception& error) {
      std::snprintf(reply.error.data(), reply.error.size(), "%s", error.what());
    }
    send_reply(connection, reply, pieces);
    for (const SharedPiece& piece : pieces) (void)close(piece.descriptor);
  }
}

bool is_ticket(const std::string& text) noexcept { return text.rfind(kMagic, 0) == 0; }

void fetch_descriptors(const std::string& text,
                       const std::function<void(const SharedPiece&)>& take) {
  const Ticket ticket = parse_ticket(text);
  const Descriptor connection(make_socket());
  sockaddr_un address{};
  const socklen_t length = address_of(ticket.name, address);
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    throw_system("the process that shares the memory cannot be reached; has it ended");
  }
  for (std::size_t first = 0; first < ticket.pieces;) {
    DescriptorRequest request{.id = ticket.id,
                              .first = first,
                              .count = std::min(ticket.pieces - first, kDescriptorsAtATime)};
    ticket.key.copy(request.key.data(), request.key.size() - 1);
    if (send(connection.get(), &request, sizeof(request), MSG_NOSIGNAL) < 0) {
      throw_system("the process that shares the memory does not listen");
    }
    std::vector<int> numbers;
    std::vector<std::unique_ptr<Descriptor>> owned;
    Reply reply;
    try {
      reply = receive_reply(connection.get(), numbers);
    } catch (...) {
      for (const int number : numbers) (void)close(number);
      throw;
    }
    for (const int number : numbers) owned.push_back(std::make_unique<Descriptor>(number));
    if (reply.error.front() != '\0') {
      throw Error(std::string("the process that shares the memory says: ") + reply.error.data());
    }
    if (numbers.empty() || numbers.size() != reply.count) {
      throw Error("the process that shares the memory sent too few file descriptors");
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      take({.descriptor = numbers[i], .size_bytes = reply.sizes[i]});
    }
    first += numbers.size();
  }
}

}  // namespace headroom::bridge
