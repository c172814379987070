# SPDX-License-Identifier: BSD-3-Clause
# Debian packages, built on Debian's LibTorch, and a small image in which they are installed.
#
#   docker build -t ddp-doctor . && docker run --rm ddp-doctor demo orphan
#   docker run --rm -v "$PWD:/work" ddp-doctor run script.pt
#   docker build --target packages --output packages .           # the packages themselves
FROM debian:13-slim AS build
WORKDIR /src
COPY scripts/setup scripts/setup
RUN scripts/setup --packages
COPY . .
RUN cmake --workflow --preset packages

FROM scratch AS packages
COPY --from=build /src/build/packages/*.deb /

FROM debian:13-slim
RUN --mount=type=bind,from=packages,target=/packages \
    apt-get update \
 && apt-get install -y --no-install-recommends /packages/ddp-doctor_*.deb /packages/ddp-doctor-worker_*.deb \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/* \
 && useradd --uid 10001 --create-home doctor
# A number, by which an orchestrator can tell that it is not root.
USER 10001
WORKDIR /work
ENTRYPOINT ["ddp-doctor"]
CMD ["--help"]
