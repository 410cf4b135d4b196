package android.content;

import android.content.res.AssetManager;
import java.io.File;

public class Context {
    public AssetManager getAssets() {
        return new AssetManager();
    }

    /** The folder that the property "files" names. */
    public File getNoBackupFilesDir() {
        return new File(System.getProperty("files"));
    }
}
