#include "csrc/allreduce/topk_allreduce.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "csrc/base/deadline.h"
#include "csrc/base/fault_point.h"
#include "csrc/topk/momentum.h"
#include "csrc/topk/payload.h"
#include "csrc/topk/scatter_add.h"

namespace taco {
namespace {

class TopkAllreduce {
 public:
  TopkAllreduce(const OpContext& op, Buffer buffer, const TopkLinks& links, const TopkWork& work,
                Residual* residual)
      : op_(op),
        buffer_(buffer),
        links_(links),
        work_(work),
        residual_(residual),
        slices_(columnSlices(buffer, links.columns, ranksOfNode(links))),
        own_(slices_[positionInNode(links)]) {}

  void run(const Reduction& insideNode) {
    if (ranksOfNode(links_) > 1) {
      links_.intra->reduceScatter(op_, std::vector<ConstBuffer>(slices_.begin(), slices_.end()),
                                  own_, insideNode);
    }
    faultPoint("topk.scattered");
    if (work_.ratio >= 1) {
      sendEverything();
    } else {
      sendLargest();
    }
  }

  static int ranksOfNode(const TopkLinks& links) {
    return links.intra == nullptr ? 1 : links.intra->size();
  }
  static size_t positionInNode(const TopkLinks& links) {
    return links.intra == nullptr ? 0 : static_cast<size_t>(links.intra->rank());
  }

 private:
  // What is sent from: the gradient, or its momentum.
  ConstBuffer source() {
    if (work_.momentum == 0) return own_;
    residual_->momentum.resize(own_.count);
    addMomentum(residual_->momentum.data(), own_, work_.momentum);
    return {residual_->momentum.data(), own_.count, DType::kFloat32};
  }

  void sendEverything() {
    if (links_.inter != nullptr) {
      flushResidual(own_, source(), residual_->values.data());
      const ReduceOp reduceOp = work_.divisor == 1 ? ReduceOp::kSum : ReduceOp::kAvg;
      links_.inter->allReduce(op_, own_, lastLevel(reduceOp, own_.dtype, work_.divisor));
    }
    if (ranksOfNode(links_) > 1) links_.intra->allGather(op_, own_, slices_);
    // A momentum that is not finite would stay so for ever. The residual is 0 already.
    if (work_.momentum != 0 && residual_ != nullptr && !allFinite(buffer_)) residual_->clear();
  }

  void sendLargest() {
    layOut();
    const size_t position = positionInNode(links_);
    auto at = Clock::now();
    const auto lap = [&at] {
      const auto before = std::exchange(at, Clock::now());
      return std::chrono::duration<double>(at - before).count();
    };
    double worked = 0;
    if (links_.inter != nullptr) {
      select(position);
      worked = lap();
      faultPoint("topk.selected");
      links_.inter->allGather(op_, payload(position, links_.inter->rank()), payloads(position));
      const size_t others = static_cast<size_t>(links_.nodes - 1);
      if (own_.count > 0) meter(&TopkMeter::exchanged, others * layouts_[position].bytes(), lap());
    }
    faultPoint("topk.crossed");
    if (ranksOfNode(links_) > 1) {
      std::vector<Buffer> columns;
      for (size_t column = 0; column < slices_.size(); ++column) columns.push_back(ofColumn(column));
      links_.intra->allGather(op_, columns[position], columns);
    }
    lap();
    bool finite = true;
    for (size_t column = 0; column < static_cast<size_t>(links_.columns); ++column) {
      finite &= addUp(column);
    }
    if (own_.count > 0) meter(&TopkMeter::worked, own_.count, worked + lap());
    if (!finite && residual_ != nullptr) residual_->clear();
  }

  void meter(void (TopkMeter::*what)(size_t, double), size_t amount, double seconds) const {
    if (work_.meter != nullptr) (work_.meter->*what)(amount, seconds);
  }

  // All payloads in one piece of memory: by column, in it by node.
  void layOut() {
    size_t bytes = 0;
    for (size_t column = 0; column < slices_.size(); ++column) {
      // A rank without a column has an empty slice, and sends nothing.
      layouts_.push_back({topkCount(slices_[column].count, work_.ratio), work_.values});
      offsets_.push_back(bytes);
      bytes += layouts_.back().bytes() * static_cast<size_t>(links_.nodes);
    }
    memory_ = std::make_unique_for_overwrite<uint8_t[]>(bytes);
  }

  Buffer ofColumn(size_t column) const {
    return {memory_.get() + offsets_[column],
            layouts_[column].bytes() * static_cast<size_t>(links_.nodes), DType::kUInt8};
  }
  Buffer payload(size_t column, int node) const {
    const size_t bytes = layouts_[column].bytes();
    return ofColumn(column).slice(static_cast<size_t>(node) * bytes, bytes);
  }
  std::vector<Buffer> payloads(size_t column) const {
    std::vector<Buffer> all;
    for (int node = 0; node < links_.nodes; ++node) all.push_back(payload(column, node));
    return all;
  }

  void select(size_t column) {
    void* const chosen = payload(column, links_.inter->rank()).data;
    residual_->selector.select(source(), residual_->values.data(), layouts_[column], chosen);
    if (work_.momentum != 0) maskSent(residual_->momentum.data(), chosen, layouts_[column]);
  }

  bool addUp(size_t column) const {
    std::vector<const void*> parts;
    for (const Buffer& part : payloads(column)) parts.push_back(part.data);
    return scatterAdd(parts, layouts_[column], slices_[column], work_.divisor);
  }

  const OpContext& op_;
  const Buffer buffer_;
  const TopkLinks& links_;
  const TopkWork& work_;
  Residual* residual_;
  const std::vector<Buffer> slices_;  // one for each rank of the node
  const Buffer own_;
  std::vector<PayloadLayout> layouts_;  // one for each slice
  std::vector<size_t> offsets_;
  std::unique_ptr<uint8_t[]> memory_;
};

}  // namespace

ColumnRange topkSlice(size_t count, const TopkLinks& links) {
  return columnRange(count, links.columns,
                     static_cast<int>(TopkAllreduce::positionInNode(links)));
}

void allReduceTopk(const OpContext& op, Buffer buffer, const Reduction& insideNode,
                   const TopkLinks& links, const TopkWork& work, Residual* residual) {
  TopkAllreduce(op, buffer, links, work, residual).run(insideNode);
}

}  // namespace taco
