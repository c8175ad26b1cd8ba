#include "cli/plan/plan_curve.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace headroom::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostPoints = 128;  // as many as a screen can show

// Of each stretch of the step its highest moment, so that no peak is lost.
std::vector<std::size_t> highest_moments(const train::Plan& plan) {
  const auto& all = plan.timeline;
  const std::size_t points = std::min(kMostPoints, all.size());
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < points; ++i) {
    const auto at = [&](std::size_t k) {
      return all.begin() + static_cast<std::ptrdiff_t>(k * all.size() / points);
    };
    const auto highest =
        std::ranges::max_element(at(i), at(i + 1), {}, [](const train::CategoryBytes& bytes) {
          return train::total(bytes);
        });
    out.push_back(static_cast<std::size_t>(highest - all.begin()));
  }
  return out;
}

class Differences {
 public:
  void add(std::int64_t value) {
    if (value == before_) {
      ++zeros_;
      return;
    }
    end_zeros();
    part(value - before_);
    before_ = value;
  }
  std::string text() && {
    end_zeros();
    return std::move(out_);
  }

 private:
  void part(std::int64_t value, const char* sign = "") {
    std::array<char, 16> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, 36).ptr;
    if (!out_.empty()) out_ += ',';
    out_.append(sign).append(digits.data(), end);
  }
  void end_zeros() {
    if (zeros_ > 0) part(zeros_, "~");
    zeros_ = 0;
  }

  std::string out_{};
  std::int64_t before_ = 0;
  std::int64_t zeros_ = 0;
};

template <class Values, class F>
std::string differences(const Values& values, F&& of) {
  Differences out;
  for (const auto& value : values) out.add(static_cast<std::int64_t>(of(value)));
  return std::move(out).text();
}

}  // namespace

Json curve_json(const train::Plan& plan) {
  const std::vector<std::size_t> points = highest_moments(plan);
  Json out;
  out["parameters"] = plan.parameters;
  out["peak"] = plan.peak_allocated;
  out["reserved"] = plan.peak_reserved;
  out["steps"] = plan.is_settled ? 0 : plan.steps;  // 0: however many
  out["phase"] = plan.peak_phase;
  out["layer"] = plan.peak_layer;
  out["again"] = plan.recompute_fraction;
  out["at"] = Json::array();
  out["events"] = plan.timeline.size() - 1;  // the first of the timeline is before any
  out["points"] = differences(points, [](std::size_t at) { return at; });
  out["series"] = Json::array();
  for (const memory::Category category : kCurveCategories) {
    const auto index = static_cast<std::size_t>(category);
    out["at"].push_back(plan.categories[index]);
    out["series"].push_back(
        differences(points, [&](std::size_t at) { return plan.timeline[at][index]; }));
  }
  out["phases"] = Json::array();
  for (const train::PhaseSpan& span : plan.phases) {
    out["phases"].push_back({span.name, span.begin, span.end});
  }
  return out;
}

}  // namespace headroom::cli
