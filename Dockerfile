# The workbook in a container, for one reader; the instructor's guide says how a JupyterHub uses it.
#     docker build -t workbook .
#     docker run --rm --init --shm-size=1g -p 127.0.0.1:8888:8888 -v workbook:/home/reader workbook
FROM python:3.12-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends git make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 reader

# .venv is a link, so a copy of the folder does not copy the packages.
WORKDIR /srv/workbook
COPY . .
RUN mkdir /srv/environment \
    && ln -s /srv/environment .venv \
    && make setup TORCH=cpu \
    && rm -rf /root/.cache

# A reader's copy is in their own folder, and takes its packages from the environment above.
ENV SHARED=/srv/environment
USER reader
WORKDIR /home/reader
EXPOSE 8888
CMD ["sh", "-c", "[ -d workbook ] || cp -r /srv/workbook workbook; cd workbook && exec make lab ARGS='--no-browser --ip=0.0.0.0 --port=8888'"]
