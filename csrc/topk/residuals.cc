#include "csrc/topk/residuals.h"

#include <algorithm>
#include <cmath>

namespace taco {

const char* name(ResidualDomain domain) {
  switch (domain) {
    case ResidualDomain::kFlat: return "flat";
    case ResidualDomain::k2d: return "2d";
  }
  return "unknown";
}

void Residual::clear() {
  std::fill(values.begin(), values.end(), 0.0f);
  std::fill(momentum.begin(), momentum.end(), 0.0f);
}

void Residual::scale(float factor) {
  if (factor == 0) return clear();
  for (float& value : values) value *= factor;
  for (float& value : momentum) value *= factor;
}

std::shared_ptr<Residual> Residuals::of(const ResidualKey& key, ResidualDomain domain, size_t begin,
                                        size_t count) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<Residual>& found = residuals_[key];
  const bool fits = found && found->domain == domain && found->begin == begin &&
                    found->values.size() == count;
  if (!fits) {
    found = std::make_shared<Residual>();
    found->domain = domain;
    found->begin = begin;
    found->values.resize(count);
  }
  return found;
}

std::shared_ptr<Residual> Residuals::find(const ResidualKey& key) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = residuals_.find(key);
  return found == residuals_.end() ? nullptr : found->second;
}

std::vector<std::shared_ptr<Residual>> Residuals::all() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Residual>> all;
  for (const auto& [key, residual] : residuals_) all.push_back(residual);
  return all;
}

void Residuals::forget(uint64_t storage) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(residuals_, [&](const auto& entry) { return entry.first.storage == storage; });
}

void Residuals::clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  residuals_.clear();
  steps_.clear();
}

ResidualStats Residuals::stats() const {
  ResidualStats stats;
  double squares = 0;
  for (const auto& residual : all()) {
    ++stats.count;
    stats.bytes += residual->bytes();
    for (const float value : residual->values) squares += static_cast<double>(value) * value;
  }
  stats.norm = std::sqrt(squares);
  return stats;
}

uint64_t Residuals::nextStep(uint64_t count, DType dtype) {
  std::lock_guard<std::mutex> lock(mutex_);
  return steps_[{count, dtype}]++;
}

}  // namespace taco
