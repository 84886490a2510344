# An embedded Kafka for development and CI, reached from the host: docker run --rm -p 9092:9092 kafkacore
# docs/testing.md says how other containers reach it, and how to keep its data.

FROM python:3.13-slim AS build
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml setup.py MANIFEST.in README.md LICENSE pyspark_kafkacore.py ./
COPY tools tools
COPY kafkacore kafkacore
RUN python -m venv /opt/kafkacore \
    && /opt/kafkacore/bin/pip install --no-cache-dir '.[cli]'

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /data --create-home --shell /usr/sbin/nologin kafkacore
COPY --from=build /opt/kafkacore /opt/kafkacore
ENV PATH=/opt/kafkacore/bin:$PATH
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 9092
HEALTHCHECK --interval=10s --timeout=10s --start-period=5s CMD ["kafkacore", "topics", "list"]
ENTRYPOINT ["kafkacore"]
CMD ["broker", "--host", "0.0.0.0", "--advertised-host", "localhost"]
