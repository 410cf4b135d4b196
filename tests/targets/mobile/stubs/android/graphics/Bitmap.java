package android.graphics;

public final class Bitmap {
    private final int[] colours;
    private final int width;

    public Bitmap(int[] colours, int width) {
        this.colours = colours;
        this.width = width;
    }

    public int getWidth() {
        return width;
    }

    public int getHeight() {
        return colours.length / width;
    }

    public void getPixels(int[] pixels, int offset, int stride, int x, int y, int width, int height) {
        System.arraycopy(colours, 0, pixels, offset, colours.length);
    }
}
