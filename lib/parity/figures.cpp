// SPDX-License-Identifier: BSD-3-Clause
#include "lib/parity/figures.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lib/error.h"

namespace ddp_doctor {
namespace {

using nlohmann::json;

constexpr int kVersion = 2;

double mean_of(const json& number) { return number.is_number() ? number.get<double>() : 0.0; }

ParityStep step_of(const json& content) {
  ParityStep step;
  step.step = content.at("step").get<std::int64_t>();
  step.alone = content.at("alone").get<std::vector<int>>();
  std::size_t vectors = kAlone + step.alone.size();
  if (const auto& padded = content.at("padded"); !padded.is_null())
    step.padded = {kAlone + padded.get<std::size_t>(), vectors++};
  if (content.at("again").get<bool>()) step.again = vectors++;
  step.apart = content.value("apart", false);
  for (const auto& parameter : content.at("parameters")) {
    const auto triangle = parameter.at("products").get<std::vector<double>>();
    if (triangle.size() != vectors * (vectors + 1) / 2)
      throw Error(
          fmt::format("{} inner products, not those of {} gradients", triangle.size(), vectors));
    step.parameters.push_back({parameter.at("name").get<std::string>(), {vectors, triangle}});
    if (const auto rank = parameter.find("rank"); rank != parameter.end() && rank->is_number())
      step.parameters.back().rank = rank->get<int>();
  }
  step.not_told = content.at("not_told").get<std::vector<std::string>>();
  for (const auto& loss : content.at("loss").at("ranks")) step.rank_losses.push_back(mean_of(loss));
  step.loss = mean_of(content.at("loss").at("one"));
  step.counts = content.at("counts").get<std::map<std::string, std::vector<double>>>();
  if (const auto& module = content.at("module"); !module.is_null()) {
    step.module = {module.at("name").get<std::string>(), module.at("type").get<std::string>(),
                   module.at("distance").get<double>()};
  }
  return step;
}

}  // namespace

void write_impossible(const std::filesystem::path& file, const std::string& reason) {
  std::ofstream(file) << json{{"version", kVersion}, {"impossible", reason}} << '\n';
}

ParityFigures load_parity_figures(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in)
    throw Error(
        fmt::format("{}: no figures of a comparison with one process; run ddp-doctor parity again",
                    file.string()));
  try {
    const json content = json::parse(in);
    if (const int version = content.at("version").get<int>(); version != kVersion)
      throw Error(fmt::format("version {}, and this ddp-doctor reads {}", version, kVersion));
    ParityFigures figures;
    if (content.contains("impossible")) {
      figures.impossible = content.at("impossible").get<std::string>();
      return figures;
    }
    for (const auto& step : content.at("steps")) figures.steps.push_back(step_of(step));
    figures.random = content.at("random").get<std::vector<std::string>>();
    figures.frozen_differ = content.at("frozen_differ").get<std::vector<std::string>>();
    figures.dealt = content.at("dealt").get<bool>();
    figures.low_precision = content.at("low_precision").get<bool>();
    return figures;
  } catch (const std::exception& error) {
    throw Error(fmt::format("{}: cannot be read ({}); run ddp-doctor parity again", file.string(),
                            error.what()));
  }
}

}  // namespace ddp_doctor
