"""Super-resolution of dust maps: a regression mean, and diffusion for what it cannot know."""
