// SPDX-License-Identifier: BSD-3-Clause
// The GPU's part of a digest: the hash of every whole block of 8 KiB, its statistics, and copies of
// the bytes that the CPU finishes (lib/digest/cuda/batch.h).
//
// A warp takes a block, because XXH3 has eight sums that go their own ways for 1 KiB, and adding up
// is associative: lane l reads 16 bytes at 512 j + 16 l for j = 0 to 15, all of them before it
// begins. Within such a load, four lanes share a stripe of 64 bytes, and each of them has two of
// the eight sums; the two need only each other's input. After each KiB the eight stripes of a load,
// and both loads, are added across the warp, and the sums are scrambled. All 8 KiB are then in
// registers, so the largest magnitude is known before squares are taken: these are scaled by a
// power of two where a float could not hold them.
//
// Nothing here is CUDA's but the names of its functions: `Warp` gives the lanes their exchange, so
// that tests run the same lines as 32 threads of a CPU. Results depend on the data alone, never on
// the order in which warps run.
#pragma once

#include <stdint.h>

#if defined(__CUDA__) || defined(__CUDACC__)
#define DDP_DOCTOR_LANE __attribute__((device, always_inline)) inline
#define DDP_DOCTOR_TABLE static __attribute__((device)) const
#define DDP_DOCTOR_UNROLL _Pragma("unroll")
#define DDP_DOCTOR_KEEP_LOOP _Pragma("unroll 1")
#else
#define DDP_DOCTOR_LANE inline
#define DDP_DOCTOR_TABLE inline constexpr
#define DDP_DOCTOR_UNROLL
#define DDP_DOCTOR_KEEP_LOOP
#endif

namespace ddp_doctor::cuda {

constexpr int kLanes = 32;
constexpr int kBlockBytes = 8 * 1024;
constexpr int kLoads = kBlockBytes / (kLanes * 16);
constexpr int kSamples = 8;
constexpr int kTensorsInLaunch = 512;
constexpr int kLaunches = 8;  // under way at a time

// In host memory; the CPU finishes the digest.
struct DeviceBlockDigest {
  uint64_t low, high;  // XXH3-128
  double squares, max_abs;
  int64_t nonfinite;
};

// The numbers of lib/digest/digest.h.
enum Type : uint8_t {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt8,
  kUInt8,
  kInt16,
  kInt32,
  kInt64,
  kBool,
};

struct Tensor {
  const uint8_t* data;
  DeviceBlockDigest* digests;  // one for each whole block
  uint8_t* rest;  // the bytes after the last whole block, then kSamples elements of 8 bytes
  uint8_t* copy;  // of all bytes; null: not wanted
  int64_t numel;
  uint32_t first_unit;  // of the launch: a unit for each whole block, and a last one for the rest
  uint32_t blocks;
  uint8_t type;
  uint8_t element;  // bytes
};

struct Launch {
  uint32_t count;
  uint32_t units;
  Tensor tensors[kTensorsInLaunch];
};

template <class To, class From>
DDP_DOCTOR_LANE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

struct alignas(16) Piece {
  uint64_t words[2];
};

// Makes the compiler reload the pieces from their registers instead of keeping derived values.
DDP_DOCTOR_LANE void forget_derived(Piece (&pieces)[kLoads]) {
#if defined(__CUDA_ARCH__)
  DDP_DOCTOR_UNROLL
  for (Piece& piece : pieces) asm volatile("" : "+l"(piece.words[0]), "+l"(piece.words[1]));
#else
  (void)pieces;
#endif
}

// 2^exponent, of a normal number.
DDP_DOCTOR_LANE float float_power(int exponent) {
  return bits_as<float>(static_cast<uint32_t>(exponent + 127) << 23);
}
DDP_DOCTOR_LANE double double_power(int exponent) {
  return bits_as<double>(static_cast<uint64_t>(exponent + 1023) << 52);
}

template <class Unit>
DDP_DOCTOR_LANE Piece assembled(const uint8_t* at) {
  constexpr int kInWord = 8 / sizeof(Unit);
  Piece piece = {};
  DDP_DOCTOR_UNROLL
  for (int i = 0; i < 2 * kInWord; ++i) {
    const auto unit = static_cast<uint64_t>(reinterpret_cast<const Unit*>(at)[i]);
    piece.words[i / kInWord] |= unit << (i % kInWord * 8 * static_cast<int>(sizeof(Unit)));
  }
  return piece;
}

// The 16 bytes at `at`, in the largest units that lie there: a view may begin at any element.
template <class Unit>
DDP_DOCTOR_LANE void load_pieces(const uint8_t* at, Piece (&pieces)[kLoads]) {
  DDP_DOCTOR_UNROLL
  for (int load = 0; load < kLoads; ++load) pieces[load] = assembled<Unit>(at + 512 * load);
}

DDP_DOCTOR_LANE void load_block(const uint8_t* at, Piece (&pieces)[kLoads]) {
  const auto misaligned = static_cast<unsigned>(reinterpret_cast<uintptr_t>(at) % 16);
  if (misaligned == 0) {
    DDP_DOCTOR_UNROLL
    for (int load = 0; load < kLoads; ++load)
      pieces[load] = *reinterpret_cast<const Piece*>(at + 512 * load);
  } else if (misaligned % 4 == 0) {
    load_pieces<uint32_t>(at, pieces);
  } else if (misaligned % 2 == 0) {
    load_pieces<uint16_t>(at, pieces);
  } else {
    load_pieces<uint8_t>(at, pieces);
  }
}

// ---- XXH3-128 of 8 KiB, by its specification (github.com/Cyan4973/xxHash, doc/xxhash_spec.md)

constexpr uint64_t kPrime32_1 = 0x9E3779B1U;
constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87U;
constexpr uint64_t kPrime64_2 = 0xC2B2AE3D27D4EB4FU;

// The secret of 192 bytes as words, and the parts of it that begin elsewhere than at a word.
DDP_DOCTOR_TABLE uint64_t kSecret[24] = {
    0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
    0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
    0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
    0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
    0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
    0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af};
constexpr int kScrambleAt = 128, kLastStripeAt = 121, kMergeLowAt = 11, kMergeHighAt = 117;
DDP_DOCTOR_TABLE uint64_t kFirstSums[8] = {
    0xC2B2AE3D,         0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
    0x85EBCA77C2B2AE63, 0x85EBCA77,         0x27D4EB2F165667C5, 0x9E3779B1};

DDP_DOCTOR_LANE uint64_t secret_at(int byte) {
  const int word = byte / 8, shift = byte % 8 * 8;
  if (shift == 0) return kSecret[word];
  return kSecret[word] >> shift | kSecret[word + 1] << (64 - shift);
}

DDP_DOCTOR_LANE uint64_t product_of_halves(uint64_t value) {
  return (value & 0xffffffffU) * (value >> 32);
}

__extension__ typedef unsigned __int128 Wide;

DDP_DOCTOR_LANE uint64_t folded_product(uint64_t a, uint64_t b) {
  const auto product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

DDP_DOCTOR_LANE uint64_t avalanche(uint64_t hash) {
  hash ^= hash >> 37;
  hash *= 0x165667919E3779F9U;
  return hash ^ hash >> 32;
}

DDP_DOCTOR_LANE uint64_t scrambled(uint64_t sum, uint64_t key) {
  return (sum ^ sum >> 47 ^ key) * kPrime32_1;
}

// What lane `pair` adds to one half of the digest.
template <class Warp>
DDP_DOCTOR_LANE uint64_t merged(const Warp& warp, const uint64_t sums[2], int secret, int pair,
                                uint64_t start) {
  uint64_t part = folded_product(sums[0] ^ secret_at(secret + 16 * pair),
                                 sums[1] ^ secret_at(secret + 16 * pair + 8));
  part += warp.exchanged(part, 1);
  part += warp.exchanged(part, 2);
  return avalanche(start + part);
}

template <class Warp>
DDP_DOCTOR_LANE void hash_block(const Warp& warp, const Piece (&pieces)[kLoads],
                                DeviceBlockDigest& result) {
  const int pair = warp.lane() % 4, stripe = warp.lane() / 4;
  uint64_t sums[2] = {kFirstSums[2 * pair], kFirstSums[2 * pair + 1]};
  DDP_DOCTOR_UNROLL
  for (int load = 0; load < kLoads; load += 2) {
    uint64_t added[2] = {};
    DDP_DOCTOR_UNROLL
    for (int half = 0; half < 2; ++half) {
      const bool last = load + half + 1 == kLoads && stripe == 7;
      const int key = last ? kLastStripeAt + 16 * pair : 8 * (8 * half + stripe) + 16 * pair;
      const uint64_t* words = pieces[load + half].words;
      added[0] += words[1] + product_of_halves(words[0] ^ secret_at(key));
      added[1] += words[0] + product_of_halves(words[1] ^ secret_at(key + 8));
    }
    DDP_DOCTOR_UNROLL
    for (int i = 0; i < 2; ++i) {
      for (int apart = 4; apart < kLanes; apart *= 2) added[i] += warp.exchanged(added[i], apart);
      sums[i] += added[i];
      if (load + 2 < kLoads)
        sums[i] = scrambled(sums[i], secret_at(kScrambleAt + 16 * pair + 8 * i));
    }
  }
  result.low = merged(warp, sums, kMergeLowAt, pair, kBlockBytes * kPrime64_1);
  result.high = merged(warp, sums, kMergeHighAt, pair, ~(kBlockBytes * kPrime64_2));
}

// ---- figures

template <class Warp>
DDP_DOCTOR_LANE double sum_of(const Warp& warp, double value) {
  for (int apart = 1; apart < kLanes; apart *= 2)
    value += bits_as<double>(warp.exchanged(bits_as<uint64_t>(value), apart));
  return value;
}

template <class Warp>
DDP_DOCTOR_LANE uint64_t largest_of(const Warp& warp, uint64_t value) {
  for (int apart = 1; apart < kLanes; apart *= 2) {
    const uint64_t other = warp.exchanged(value, apart);
    value = other > value ? other : value;
  }
  return value;
}

struct OfFloat32 {
  using Bits = uint32_t;
  static constexpr Bits kSignless = 0x7fffffffU, kInfinity = 0x7f800000U;
  DDP_DOCTOR_LANE static float value(Bits bits) { return bits_as<float>(bits); }
};

struct OfBFloat16 {
  using Bits = uint16_t;
  static constexpr Bits kSignless = 0x7fffU, kInfinity = 0x7f80U;
  DDP_DOCTOR_LANE static float value(Bits bits) {
    return bits_as<float>(static_cast<uint32_t>(bits) << 16);
  }
};

// As lib/digest/kernel_loops.h has it: the factor corrects the exponent's bias, for subnormals too.
struct OfFloat16 {
  using Bits = uint16_t;
  static constexpr Bits kSignless = 0x7fffU, kInfinity = 0x7c00U;
  DDP_DOCTOR_LANE static float value(Bits bits) {
    return bits_as<float>((static_cast<uint32_t>(bits) & 0x7fffU) << 13) * float_power(112);
  }
};

template <class Bits>
constexpr int kInPiece = 16 / sizeof(Bits);

// Of element i within its word.
template <class Bits>
DDP_DOCTOR_LANE int shift_of(int i) {
  return i % (kInPiece<Bits> / 2) * 8 * static_cast<int>(sizeof(Bits));
}

template <class Bits>
DDP_DOCTOR_LANE Bits element_of(const Piece& piece, int i) {
  return static_cast<Bits>(piece.words[i / (kInPiece<Bits> / 2)] >> shift_of<Bits>(i));
}

template <class Format>
DDP_DOCTOR_LANE uint64_t largest_in(const Piece (&pieces)[kLoads]) {
  using Bits = typename Format::Bits;
  Bits largest = 0;
  DDP_DOCTOR_UNROLL
  for (const Piece& piece : pieces) {
    DDP_DOCTOR_UNROLL
    for (int i = 0; i < kInPiece<Bits>; ++i) {
      const Bits bits = element_of<Bits>(piece, i) & Format::kSignless;
      largest = bits > largest ? bits : largest;
    }
  }
  return largest;
}

// Replaces values that are not finite by zeros; returns their number.
template <class Format>
DDP_DOCTOR_LANE int leave_out_nonfinite(Piece (&pieces)[kLoads]) {
  using Bits = typename Format::Bits;
  int others = 0;
  DDP_DOCTOR_UNROLL
  for (Piece& piece : pieces) {
    DDP_DOCTOR_UNROLL
    for (int i = 0; i < kInPiece<Bits>; ++i) {
      if ((element_of<Bits>(piece, i) & Format::kSignless) < Format::kInfinity) continue;
      ++others;
      piece.words[i / (kInPiece<Bits> / 2)] &=
          ~(static_cast<uint64_t>(static_cast<Bits>(~Bits{0})) << shift_of<Bits>(i));
    }
  }
  return others;
}

// Squares are added as floats, sixteen of them, and then as doubles.
template <class Format, class Warp>
DDP_DOCTOR_LANE void float_figures(const Warp& warp, Piece (&pieces)[kLoads],
                                   DeviceBlockDigest& result) {
  using Bits = typename Format::Bits;
  uint64_t largest = largest_of(warp, largest_in<Format>(pieces));
  forget_derived(pieces);
  if (largest >= Format::kInfinity) {
    const int others = leave_out_nonfinite<Format>(pieces);
    result.nonfinite = static_cast<int64_t>(sum_of(warp, static_cast<double>(others)));
    forget_derived(pieces);
    largest = largest_of(warp, largest_in<Format>(pieces));
    forget_derived(pieces);
  }
  const float max_abs = Format::value(static_cast<Bits>(largest));
  result.max_abs = static_cast<double>(max_abs);
  int exponent = static_cast<int>(bits_as<uint32_t>(max_abs) >> 23) - 127;
  if (exponent >= -30 && exponent < 50) exponent = 0;
  if (exponent > 126) exponent = 126;
  if (exponent < -126) exponent = -126;
  const float scale = float_power(-exponent);
  float squares[kInPiece<Bits>] = {};
  DDP_DOCTOR_UNROLL
  for (const Piece& piece : pieces) {
    DDP_DOCTOR_UNROLL
    for (int i = 0; i < kInPiece<Bits>; ++i) {
      const float value = Format::value(element_of<Bits>(piece, i)) * scale;
      squares[i] += value * value;
    }
  }
  double sum = 0.0;
  DDP_DOCTOR_UNROLL
  for (const float some : squares) sum += static_cast<double>(some);
  const double unscaled = double_power(exponent);
  result.squares = sum_of(warp, sum) * unscaled * unscaled;
}

DDP_DOCTOR_LANE double magnitude_of(uint8_t type, uint64_t bits) {
  double value = 0.0;
  switch (type) {
    case kFloat64:
      return bits_as<double>(bits & 0x7fffffffffffffffU);
    case kInt8:
      value = static_cast<double>(static_cast<int8_t>(bits));
      break;
    case kInt16:
      value = static_cast<double>(static_cast<int16_t>(bits));
      break;
    case kInt32:
      value = static_cast<double>(static_cast<int32_t>(bits));
      break;
    case kInt64:
      value = static_cast<double>(static_cast<int64_t>(bits));
      break;
    case kBool:
      return bits != 0 ? 1.0 : 0.0;
    default:
      return static_cast<double>(bits);
  }
  return value < 0.0 ? -value : value;
}

// float64 and integers, of which a GPU has few: as doubles, read once more.
template <class Warp>
DDP_DOCTOR_LANE void double_figures(const Warp& warp, const Tensor& tensor, const uint8_t* begin,
                                    DeviceBlockDigest& result) {
  double squares = 0.0, largest = 0.0, others = 0.0;
  DDP_DOCTOR_KEEP_LOOP
  for (int at = warp.lane() * tensor.element; at < kBlockBytes; at += kLanes * tensor.element) {
    uint64_t bits = 0;
    DDP_DOCTOR_KEEP_LOOP
    for (int byte = 0; byte < tensor.element; ++byte)
      bits |= static_cast<uint64_t>(begin[at + byte]) << (8 * byte);
    const double value = magnitude_of(tensor.type, bits);
    const bool finite = bits_as<uint64_t>(value) < 0x7ff0000000000000U;
    others += finite ? 0.0 : 1.0;
    squares += finite ? value * value : 0.0;
    largest = finite && value > largest ? value : largest;
  }
  result.squares = sum_of(warp, squares);
  result.max_abs = bits_as<double>(largest_of(warp, bits_as<uint64_t>(largest)));
  result.nonfinite = static_cast<int64_t>(sum_of(warp, others));
}

// ---- units of work

template <class Warp>
DDP_DOCTOR_LANE void digest_block(const Warp& warp, const Tensor& tensor, uint32_t block) {
  const int64_t begin = static_cast<int64_t>(block) * kBlockBytes;
  Piece pieces[kLoads];
  load_block(tensor.data + begin + 16 * warp.lane(), pieces);
  if (tensor.copy != nullptr) {
    DDP_DOCTOR_UNROLL
    for (int load = 0; load < kLoads; ++load)
      *reinterpret_cast<Piece*>(tensor.copy + begin + 512 * load + 16 * warp.lane()) = pieces[load];
  }
  DeviceBlockDigest result = {};
  hash_block(warp, pieces, result);
  forget_derived(pieces);
  switch (tensor.type) {
    case kFloat32:
      float_figures<OfFloat32>(warp, pieces, result);
      break;
    case kFloat16:
      float_figures<OfFloat16>(warp, pieces, result);
      break;
    case kBFloat16:
      float_figures<OfBFloat16>(warp, pieces, result);
      break;
    default:
      double_figures(warp, tensor, tensor.data + begin, result);
  }
  // Every lane has all of it: five of them write a part each, in one transaction.
  const int part = warp.lane();
  uint64_t value = result.low;
  if (part == 1) value = result.high;
  if (part == 2) value = bits_as<uint64_t>(result.squares);
  if (part == 3) value = bits_as<uint64_t>(result.max_abs);
  if (part == 4) value = bits_as<uint64_t>(result.nonfinite);
  if (part < 5) reinterpret_cast<uint64_t*>(tensor.digests + block)[part] = value;
}

template <class Warp>
DDP_DOCTOR_LANE void copy_rest(const Warp& warp, const Tensor& tensor) {
  const int64_t begin = static_cast<int64_t>(tensor.blocks) * kBlockBytes;
  const int64_t bytes = tensor.numel * tensor.element - begin;
  DDP_DOCTOR_KEEP_LOOP
  for (int64_t at = warp.lane(); at < bytes; at += kLanes) {
    tensor.rest[at] = tensor.data[begin + at];
    if (tensor.copy != nullptr) tensor.copy[begin + at] = tensor.data[begin + at];
  }
  // The positions of sample() in lib/digest/elements.h.
  const int64_t k = warp.lane();
  if (k >= kSamples || k >= tensor.numel) return;
  const int64_t position =
      tensor.numel <= kSamples ? k : (2 * k + 1) * tensor.numel / (2 * kSamples);
  DDP_DOCTOR_KEEP_LOOP
  for (int byte = 0; byte < tensor.element; ++byte)
    tensor.rest[kBlockBytes + 8 * k + byte] = tensor.data[position * tensor.element + byte];
}

template <class Warp>
DDP_DOCTOR_LANE void digest_unit(const Warp& warp, const Launch& launch, uint32_t unit) {
  uint32_t first = 0, last = launch.count - 1;  // the tensor that has the unit is among these
  while (first < last) {
    const uint32_t middle = (first + last + 1) / 2;
    if (launch.tensors[middle].first_unit <= unit) {
      first = middle;
    } else {
      last = middle - 1;
    }
  }
  const Tensor tensor = launch.tensors[first];
  if (unit - tensor.first_unit < tensor.blocks) {
    digest_block(warp, tensor, unit - tensor.first_unit);
  } else {
    copy_rest(warp, tensor);
  }
}

}  // namespace ddp_doctor::cuda
