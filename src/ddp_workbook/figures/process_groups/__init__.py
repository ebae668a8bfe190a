"""Chapter 03's pictures: torchruns and their ranks, meetings at a store, meshes."""
