// Result<T, E>: a value or the reason there is none.
//
// A small subset of std::expected, so that a later move to C++23 is an alias:
//
//   Result<int, std::string> parse(std::string_view text);
//   if (auto n = parse("42")) use(*n); else complain(n.error());
//   return Unexpected("not a number");
#pragma once

#include <type_traits>
#include <utility>
#include <variant>

#include "headroom/base/check.h"

namespace headroom {

// Marks the error side: `return Unexpected(reason);`.
template <class E>
class Unexpected {
 public:
  constexpr explicit Unexpected(E error) noexcept(std::is_nothrow_move_constructible_v<E>)
      : error_(std::move(error)) {}
  [[nodiscard]] constexpr const E& error() const& noexcept { return error_; }
  [[nodiscard]] constexpr E&& error() && noexcept { return std::move(error_); }

 private:
  E error_;
};

template <class E>
Unexpected(E) -> Unexpected<E>;

template <class T, class E>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  using error_type = E;

  // Implicit on purpose, as in std::expected: `return value;` and `return Unexpected(e);`.
  // NOLINTNEXTLINE(google-explicit-constructor): as the line above says
  constexpr Result(T value) noexcept(std::is_nothrow_move_constructible_v<T>)
      : state_(std::in_place_index<0>, std::move(value)) {}
  template <class F>
    requires std::is_convertible_v<F, E>
  constexpr Result(Unexpected<F> error)  // NOLINT(google-explicit-constructor): as above
      noexcept(std::is_nothrow_constructible_v<E, F&&>)
      : state_(std::in_place_index<1>, std::move(error).error()) {}

  [[nodiscard]] constexpr bool has_value() const noexcept { return state_.index() == 0; }
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return has_value(); }

  [[nodiscard]] constexpr T& value() & { return checked(), *std::get_if<0>(&state_); }
  [[nodiscard]] constexpr const T& value() const& { return checked(), *std::get_if<0>(&state_); }
  [[nodiscard]] constexpr T&& value() && { return checked(), std::move(*std::get_if<0>(&state_)); }

  [[nodiscard]] constexpr T& operator*() & noexcept { return *std::get_if<0>(&state_); }
  [[nodiscard]] constexpr const T& operator*() const& noexcept { return *std::get_if<0>(&state_); }
  [[nodiscard]] constexpr T&& operator*() && noexcept {
    return std::move(*std::get_if<0>(&state_));
  }
  [[nodiscard]] constexpr T* operator->() noexcept { return std::get_if<0>(&state_); }
  [[nodiscard]] constexpr const T* operator->() const noexcept { return std::get_if<0>(&state_); }

  [[nodiscard]] constexpr const E& error() const& noexcept { return *std::get_if<1>(&state_); }
  [[nodiscard]] constexpr E&& error() && noexcept { return std::move(*std::get_if<1>(&state_)); }

  template <class U>
  [[nodiscard]] constexpr T value_or(U&& fallback) const& {
    return has_value() ? **this : static_cast<T>(std::forward<U>(fallback));
  }

 private:
  constexpr void checked() const {
    HEADROOM_CHECK(has_value(), "value() of a Result that holds an error");
  }

  std::variant<T, E> state_;
};

template <class E>
class [[nodiscard]] Result<void, E> {
 public:
  using value_type = void;
  using error_type = E;

  constexpr Result() noexcept = default;
  template <class F>
    requires std::is_convertible_v<F, E>
  constexpr Result(Unexpected<F> error)  // NOLINT(google-explicit-constructor): as above
      noexcept(std::is_nothrow_constructible_v<E, F&&>)
      : state_(std::in_place_index<1>, std::move(error).error()) {}

  [[nodiscard]] constexpr bool has_value() const noexcept { return state_.index() == 0; }
  [[nodiscard]] constexpr explicit operator bool() const noexcept { return has_value(); }
  constexpr void value() const {
    HEADROOM_CHECK(has_value(), "value() of a Result that holds an error");
  }
  [[nodiscard]] constexpr const E& error() const& noexcept { return *std::get_if<1>(&state_); }

 private:
  std::variant<std::monostate, E> state_;
};

}  // namespace headroom
