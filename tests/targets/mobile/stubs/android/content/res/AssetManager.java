package android.content.res;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;

/** Assets are files of the folder that the property "assets" names; those that "compressed" lists have no place of their own. */
public class AssetManager {
    private static final String FOLDER = System.getProperty("assets");

    public InputStream open(String name) throws IOException {
        return new FileInputStream(new File(FOLDER, name));
    }

    public AssetFileDescriptor openFd(String name) throws IOException {
        if (System.getProperty("compressed", "").contains(name)) throw new FileNotFoundException(name);
        return new AssetFileDescriptor(new File(FOLDER, name));
    }
}
