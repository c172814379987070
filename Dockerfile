# Two stages: build against Debian's LibTorch, then a small image with only what runs.
FROM debian:13-slim AS build
WORKDIR /src
COPY . .
RUN scripts/setup && cmake --preset release -DDDP_DOCTOR_WITH_TESTS=OFF -DDDP_DOCTOR_WITH_BENCH=OFF \
 && cmake --build --preset release && cmake --install build/release --prefix /opt/ddp-doctor --strip

FROM debian:13-slim
RUN apt-get update && apt-get install -y --no-install-recommends libfmt10 libsqlite3-0 libtorch2.6 \
 && rm -rf /var/lib/apt/lists/* && useradd --create-home doctor
COPY --from=build /opt/ddp-doctor /opt/ddp-doctor
ENV PATH=/opt/ddp-doctor/bin:$PATH
USER doctor
WORKDIR /home/doctor
ENTRYPOINT ["ddp-doctor"]
